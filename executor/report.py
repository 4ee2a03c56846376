"""Predicted against measured: the reports of all processes of a run, joined, beside what the plan foretold."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, NonNegativeInt

from cost_models.errors import SpecError
from cost_models.specs.base import Spec
from executor.causes import by_cause, described, killed_ranks, signal_of
from executor.files import write_text
from executor.hints import Thresholds, hints
from executor.measured import MemoryPeak, Outcome, Phase, RankReport, TimeSplit
from planner.plan import MemoryPrediction, Plan, Prediction


class Comparison(Spec):
    """One quantity. `ratio` is measured over predicted."""

    quantity: str
    unit: str
    predicted: float
    interval: tuple[float, float] | None
    """Lower and upper end that the plan states for it."""
    level: float | None = None
    """How much of what may happen lies within, as a share."""
    measured: float | None
    method: str
    ratio: float | None
    within_interval: bool | None


class RunReport(Spec):
    """One run of one plan."""

    plan_id: str
    request_hash: str
    outcome: Outcome
    exit_status: int
    error: str | None
    last_phase: Phase | None = None
    """Of the process that failed."""
    requested_bytes: NonNegativeInt | None = None
    """Size of the request that memory ran out at."""
    signal: int | None = None
    """That killed the process which failed first, or by which an operator stopped the run."""
    failed_rank: int | None = None
    """The process that failed first."""
    other_failures: tuple[str, ...] = ()
    """The other processes that ended badly, in the order they did."""
    processes: NonNegativeInt
    reported: NonNegativeInt
    """Processes that left a report."""
    steps_done: NonNegativeInt
    first_loss: float | None
    first_loss_step: int | None = None
    last_loss: float | None
    """The last that is a number."""
    last_loss_step: int | None = None
    """The step it belongs to."""
    diverged_at: int | None = None
    """The first step whose loss is no number."""
    comparisons: tuple[Comparison, ...]
    split: TimeSplit | None = None
    """Of the process whose profiled step took longest."""
    data_wait_seconds: float | None = None
    """Of the process that waited longest."""
    hook_share: float | None = None
    """Of the process whose instrument took most."""
    hints: tuple[str, ...] = ()
    edited: bool = False
    """Whether the plan was changed after it was made: then this says nothing of the one that was planned."""
    suspect: str | None = None
    """Why the figures may not be of the plan: `other_model` where the memory is not of its model's order."""
    resident: dict[Phase, MemoryPeak]
    """By phase, the fullest process."""
    allocated_by_phase: dict[Phase, MemoryPeak] = Field(default_factory=dict)
    """The same of live tensors, where every phase is known: on a GPU."""
    host_bytes: NonNegativeInt | None = None
    """Most host memory of the processes that reported, together."""
    utilisation: float | None = None
    """Of the process that was least busy."""
    adaptations: tuple[str, ...]
    """What this node's run changed of the exported configuration."""
    notes: tuple[str, ...]
    versions: dict[str, str]
    directory: str

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return self.model_dump(mode="json")

    def write(self, path: Path) -> Path:
        """Store it, atomically and owner-only."""
        return write_text(path, self.model_dump_json(indent=2) + "\n")


def read_ranks(directory: Path) -> tuple[RankReport, ...]:
    """The reports in `directory`, by rank; a file that is no report is an error of the run and is named.

    Raises:
        SpecError: a report cannot be read.
    """
    paths = sorted(directory.glob("rank-*.json")) if directory.is_dir() else []
    ranks = []
    for path in paths:
        try:
            ranks.append(RankReport.model_validate_json(path.read_bytes()))
        except ValueError as error:
            raise SpecError(f"{path}: not a report of a training process: {str(error).splitlines()[0]}") from error
    return tuple(sorted(ranks, key=lambda report: report.rank))


def join(
    plan: Plan,
    ranks: tuple[RankReport, ...],
    *,
    exit_status: int,
    directory: Path,
    stopped_by: int | None = None,
    adaptations: tuple[str, ...] = (),
    notes: tuple[str, ...] = (),
    limits: Thresholds | None = None,
) -> RunReport:
    """The run: the slowest step, the fullest process. `notes` are what was known before it started, `stopped_by` the
    signal by which an operator ended it.
    """
    assert plan.configuration is not None
    assert plan.prediction is not None
    killed = killed_ranks(directory / "reports")
    # Where all processes ended well, one without a last report could not write it.
    failed = [rank for rank in by_cause(ranks, killed) if exit_status or rank.outcome != "killed"]
    losses = ranks[0].losses_by_step if ranks else []
    finite = [(step, loss) for step, loss in losses if loss is not None]
    diverged_at = min((step for rank in ranks for step, loss in rank.losses_by_step if loss is None), default=None)
    outcome = "stopped" if stopped_by is not None else _outcome(failed, exit_status, diverged_at)
    found = hints(plan, ranks, limits)
    return RunReport(
        plan_id=plan.envelope.id,
        request_hash=plan.provenance.request_hash,
        outcome=outcome,
        exit_status=exit_status,
        error=_error(failed, outcome, diverged_at),
        last_phase=failed[0].phase if failed else None,
        requested_bytes=failed[0].requested_bytes if failed else None,
        signal=stopped_by or (signal_of(failed[0], killed) if failed else killed.get(None)),
        failed_rank=failed[0].rank if failed and outcome != "stopped" else None,
        other_failures=() if outcome == "stopped" else tuple(described(rank) for rank in failed[1:]),
        processes=plan.configuration.world_size,
        reported=len(ranks),
        steps_done=min((rank.steps_done for rank in ranks), default=0),
        first_loss=finite[0][1] if finite else None,
        first_loss_step=finite[0][0] if finite else None,
        last_loss=finite[-1][1] if finite else None,
        last_loss_step=finite[-1][0] if finite else None,
        diverged_at=diverged_at,
        comparisons=compare(plan.prediction, ranks, oom_risk=plan.request.constraints.oom_risk),
        split=max((r.split for r in ranks if r.split), key=lambda split: split.step_seconds, default=None),
        data_wait_seconds=max((r.data_wait_seconds for r in ranks if r.data_wait_seconds is not None), default=None),
        hook_share=max((r.hook_share for r in ranks if r.hook_share is not None), default=None),
        hints=tuple(hint.text for hint in found),
        edited=plan.edited,
        suspect="other_model" if any(hint.name == "other_model" for hint in found) else None,
        resident=fullest([rank.resident for rank in ranks]),
        allocated_by_phase=fullest([rank.allocated_by_phase for rank in ranks]),
        host_bytes=sum(rank.host.bytes for rank in ranks if rank.host) or None,
        utilisation=min((rank.utilisation for rank in ranks if rank.utilisation is not None), default=None),
        adaptations=adaptations,
        notes=notes + _notes(ranks, diverged_at, exit_status),
        versions=ranks[0].versions if ranks else {},
        directory=str(directory),
    )


def compare(prediction: Prediction, ranks: tuple[RankReport, ...], *, oom_risk: float) -> tuple[Comparison, ...]:
    """Step time, allocated bytes, resident (CPU) or reserved (CUDA) bytes, and what the driver of a GPU shows.

    A plan states the quantile of memory that is exceeded at `oom_risk`, and one as far below the median.
    """
    time, memory, within = prediction.time, prediction.memory, 1.0 - 2.0 * oom_risk
    resident = fullest([rank.resident for rank in ranks]).get("step")
    device = max((rank.device_used for rank in ranks if rank.device_used), key=lambda peak: peak.bytes, default=None)
    allocated = max((rank.allocated for rank in ranks if rank.allocated), key=lambda peak: peak.bytes, default=None)
    medians = [rank.times.median_seconds for rank in ranks if rank.times.seconds]
    steps = min((len(rank.times.seconds) for rank in ranks), default=0)
    return (
        _comparison(
            (
                "step_time",
                "s",
                f"median of {steps} steps after warm-up, slowest process" if medians else "not measured",
            ),
            (time.step_seconds, time.interval_seconds.get("80"), 0.8),
            max(medians, default=None),
        ),
        _comparison(
            ("peak_allocated", "bytes", allocated.method if allocated else "not measured"),
            (memory.allocated.median_bytes, (memory.allocated.lower_bytes, memory.allocated.upper_bytes), within),
            allocated.bytes if allocated else None,
        ),
        _comparison(
            ("peak_reserved", "bytes", resident.method if resident else "not measured"),
            (memory.reserved.median_bytes, (memory.reserved.lower_bytes, memory.reserved.upper_bytes), within),
            resident.bytes if resident else None,
        ),
        *_of_device(memory, device, within),
    )


def _of_device(memory: MemoryPrediction, used: MemoryPeak | None, within: float) -> tuple[Comparison, ...]:
    if used is None:
        return ()
    interval = (memory.device.lower_bytes, memory.device.upper_bytes)
    foretold = (memory.device.median_bytes, interval, within)
    return (_comparison(("peak_device", "bytes", used.method), foretold, used.bytes),)


def _comparison(
    what: tuple[str, str, str], predicted: tuple[float, tuple[float, float] | None, float], measured: float | None
) -> Comparison:
    (quantity, unit, method), (value, interval, level) = what, predicted
    within = None if measured is None or interval is None else interval[0] <= measured <= interval[1]
    return Comparison(
        quantity=quantity,
        unit=unit,
        predicted=value,
        interval=interval,
        level=None if interval is None else level,
        measured=measured,
        method=method,
        ratio=None if measured is None or value <= 0 else measured / value,
        within_interval=within,
    )


def fullest(ranks: Sequence[Mapping[Phase, MemoryPeak]]) -> dict[Phase, MemoryPeak]:
    """By phase, the peak of the fullest process."""
    found: dict[Phase, MemoryPeak] = {}
    for peaks in ranks:
        for phase, peak in peaks.items():
            if phase not in found or peak.bytes > found[phase].bytes:
                found[phase] = peak
    return found


def _outcome(failed: list[RankReport], exit_status: int, diverged_at: int | None) -> Outcome:
    """A loss that is no number is a divergence whether or not a guard ended the run at it."""
    if exit_status < 0 and not failed:
        return "killed"
    if failed:
        return failed[0].outcome
    if exit_status:
        return "error"
    return "ok" if diverged_at is None else "diverged"


def _error(failed: list[RankReport], outcome: Outcome, diverged_at: int | None) -> str | None:
    if failed and outcome != "stopped":
        return failed[0].error
    return f"the loss of step {diverged_at} is no number" if outcome == "diverged" else None


def _notes(ranks: tuple[RankReport, ...], diverged_at: int | None, exit_status: int) -> tuple[str, ...]:
    """What keeps a figure from being there."""
    if not ranks:
        return ("nothing was measured: no process left a report; does the script use executor.instrument.Instrument?",)
    notes = []
    if diverged_at is not None:
        notes.append(f"the loss of step {diverged_at} is no number: weights and losses after it mean nothing")
    if exit_status == 0 and any(rank.outcome == "killed" for rank in ranks):
        notes.append("a process could not write its last report: its figures are those of some steps before its end")
    if any(not rank.times.seconds for rank in ranks):
        steps = min(rank.steps_done for rank in ranks)
        notes.append(f"no step was timed: the training ended after {steps} steps, before the timed ones")
    if any(rank.allocated is None for rank in ranks):
        notes.append("allocated memory was not measured: the training ended before the measuring step")
    return tuple(notes)
