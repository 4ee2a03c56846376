"""Predicted against measured: the reports of all processes of a run, joined, beside what the plan foretold."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import Field, NonNegativeInt

from cost_models.errors import SpecError
from cost_models.specs.base import Spec
from executor.environment import FAILURE_FILE
from executor.files import write_text
from executor.hints import Thresholds, hints
from executor.measured import MemoryPeak, Outcome, Phase, RankReport, TimeSplit
from planner.plan import MemoryPrediction, Plan, Prediction

_CAUSES: Final[tuple[Outcome, ...]] = ("out_of_memory", "diverged", "slow", "error", "killed", "ok")


class Comparison(Spec):
    """One quantity. `ratio` is measured over predicted."""

    quantity: str
    unit: str
    predicted: float
    interval: tuple[float, float] | None
    """Lower and upper end that the plan states for it."""
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
    """That killed the process which failed first."""
    processes: NonNegativeInt
    reported: NonNegativeInt
    """Processes that left a report."""
    steps_done: NonNegativeInt
    first_loss: float | None
    last_loss: float | None
    comparisons: tuple[Comparison, ...]
    split: TimeSplit | None = None
    """Of the process whose profiled step took longest."""
    data_wait_seconds: float | None = None
    """Of the process that waited longest."""
    hook_share: float | None = None
    """Of the process whose instrument took most."""
    hints: tuple[str, ...] = ()
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


def first_killed(directory: Path) -> tuple[int | None, int | None]:
    """Rank and signal of the process that failed first, where a signal ended it, as the launcher of the node says."""
    try:
        told = json.loads((directory / FAILURE_FILE).read_bytes())
        rank, code = told["rank"], int(told["exit_code"])
    except (OSError, ValueError, KeyError, TypeError):
        return None, None
    return (rank, -code) if code < 0 else (None, None)


def join(
    plan: Plan,
    ranks: tuple[RankReport, ...],
    *,
    exit_status: int,
    directory: Path,
    adaptations: tuple[str, ...] = (),
    notes: tuple[str, ...] = (),
    limits: Thresholds | None = None,
) -> RunReport:
    """The run: the slowest step, the fullest process. `notes` are what was known before it started."""
    assert plan.configuration is not None
    assert plan.prediction is not None
    # When one process ends badly torchrun stops the others: the one that says more is the cause.
    failed = sorted((rank for rank in ranks if rank.outcome != "ok"), key=lambda rank: _CAUSES.index(rank.outcome))
    killed, signal_ = first_killed(directory / "reports")
    # The others of a process that was killed end by errors of their collectives: those are not the cause.
    if failed and failed[0].outcome in ("killed", "error"):
        failed.sort(key=lambda rank: rank.rank != killed)
    losses = [loss for loss in ranks[0].losses if loss is not None] if ranks else []
    return RunReport(
        plan_id=plan.envelope.id,
        request_hash=plan.provenance.request_hash,
        outcome=_outcome(failed, exit_status),
        exit_status=exit_status,
        error=failed[0].error if failed else None,
        last_phase=failed[0].phase if failed else None,
        requested_bytes=failed[0].requested_bytes if failed else None,
        signal=signal_,
        processes=plan.configuration.world_size,
        reported=len(ranks),
        steps_done=min((rank.steps_done for rank in ranks), default=0),
        first_loss=losses[0] if losses else None,
        last_loss=losses[-1] if losses else None,
        comparisons=compare(plan.prediction, ranks),
        split=max((r.split for r in ranks if r.split), key=lambda split: split.step_seconds, default=None),
        data_wait_seconds=max((r.data_wait_seconds for r in ranks if r.data_wait_seconds is not None), default=None),
        hook_share=max((r.hook_share for r in ranks if r.hook_share is not None), default=None),
        hints=tuple(hint.text for hint in hints(plan, ranks, limits)),
        resident=fullest([rank.resident for rank in ranks]),
        allocated_by_phase=fullest([rank.allocated_by_phase for rank in ranks]),
        host_bytes=sum(rank.host.bytes for rank in ranks if rank.host) or None,
        utilisation=min((rank.utilisation for rank in ranks if rank.utilisation is not None), default=None),
        adaptations=adaptations,
        notes=notes + _notes(ranks),
        versions=ranks[0].versions if ranks else {},
        directory=str(directory),
    )


def compare(prediction: Prediction, ranks: tuple[RankReport, ...]) -> tuple[Comparison, ...]:
    """Step time, allocated bytes, resident (CPU) or reserved (CUDA) bytes, and what the driver of a GPU shows."""
    time, memory = prediction.time, prediction.memory
    resident = fullest([rank.resident for rank in ranks]).get("step")
    device = max((rank.device_used for rank in ranks if rank.device_used), key=lambda peak: peak.bytes, default=None)
    allocated = max((rank.allocated for rank in ranks if rank.allocated), key=lambda peak: peak.bytes, default=None)
    medians = [rank.times.median_seconds for rank in ranks if rank.times.seconds]
    steps = min((len(rank.times.seconds) for rank in ranks), default=0)
    return (
        _comparison(
            ("step_time", "s", f"median of {steps} steps after warm-up, slowest process"),
            (time.step_seconds, time.interval_seconds.get("90")),
            max(medians, default=None),
        ),
        _comparison(
            ("peak_allocated", "bytes", allocated.method if allocated else "not measured"),
            (memory.allocated.median_bytes, (memory.allocated.lower_bytes, memory.allocated.upper_bytes)),
            allocated.bytes if allocated else None,
        ),
        _comparison(
            ("peak_reserved", "bytes", resident.method if resident else "not measured"),
            (memory.reserved.median_bytes, (memory.reserved.lower_bytes, memory.reserved.upper_bytes)),
            resident.bytes if resident else None,
        ),
        *_of_device(memory, device),
    )


def _of_device(memory: MemoryPrediction, used: MemoryPeak | None) -> tuple[Comparison, ...]:
    if used is None:
        return ()
    interval = (memory.device.lower_bytes, memory.device.upper_bytes)
    return (_comparison(("peak_device", "bytes", used.method), (memory.device.median_bytes, interval), used.bytes),)


def _comparison(
    what: tuple[str, str, str], predicted: tuple[float, tuple[float, float] | None], measured: float | None
) -> Comparison:
    (quantity, unit, method), (value, interval) = what, predicted
    within = None if measured is None or interval is None else interval[0] <= measured <= interval[1]
    return Comparison(
        quantity=quantity,
        unit=unit,
        predicted=value,
        interval=interval,
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


def _outcome(failed: list[RankReport], exit_status: int) -> Outcome:
    if exit_status < 0 and not failed:
        return "killed"
    if failed:
        return failed[0].outcome
    return "ok" if exit_status == 0 else "error"


def _notes(ranks: tuple[RankReport, ...]) -> tuple[str, ...]:
    """What keeps a figure from being there."""
    if not ranks:
        return ("no process left a report: does the script use executor.instrument.Instrument?",)
    notes = []
    if any(not rank.times.seconds for rank in ranks):
        steps = min(rank.steps_done for rank in ranks)
        notes.append(f"no step was timed: the training ended after {steps} steps, before the timed ones")
    if any(rank.allocated is None for rank in ranks):
        notes.append("allocated memory was not measured: the training ended before the measuring step")
    return tuple(notes)
