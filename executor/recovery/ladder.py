"""From how a run ended to what is done next. Pure: nothing is started here."""

import signal
from dataclasses import dataclass
from typing import Final, Literal

from cost_models.specs.choices import Precision
from executor.report import RunReport
from planner.plan import Plan

Action = Literal["done", "less_memory", "same_plan", "more_precision", "give_up"]
_MORE_PRECISION: Final[dict[Precision, Precision]] = {"fp16": "bf16", "bf16": "fp32"}
"""fp16 overflows where bf16 does not, bf16 rounds where fp32 does not (arXiv:1905.12322 section 2)."""
_MEMORY_SIGNALS: Final = (signal.SIGKILL, signal.SIGABRT)
"""The kernel's out-of-memory killer sends the first; a C++ allocation that fails ends in the second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What is done next, and why."""

    action: Action
    reason: str
    max_memory_bytes: int | None = None
    precision: Precision | None = None


def next_step(plan: Plan, report: RunReport, *, cap: int, again: bool) -> Step:
    """The step after a run of `plan` under a cap of `cap` bytes; `again`: the run before it ended in the same way, and
    no step was done since.
    """
    if report.outcome in ("ok", "stopped"):
        how = "ended" if report.outcome == "ok" else f"was stopped by signal {report.signal}"
        action: Action = "done" if report.outcome == "ok" else "give_up"
        return Step(action=action, reason=f"the training {how} after {report.steps_done} steps")
    if report.outcome == "out_of_memory":
        return _less_memory(plan, report, cap, "memory ran out")
    if report.outcome == "killed" and again and report.signal in _MEMORY_SIGNALS:
        return _less_memory(plan, report, cap, f"signal {report.signal} twice, as where the kernel runs out of memory")
    if report.outcome == "diverged":
        return _more_precision(plan, report)
    if report.outcome in ("killed", "slow", "error") and not again:
        what = f"signal {report.signal}" if report.signal else report.error or report.outcome
        return Step(action="same_plan", reason=f"{report.outcome} ({what}): once more from the last checkpoint")
    return Step(action="give_up", reason=f"{report.outcome} twice without a step done: {report.error or 'no message'}")


def _less_memory(plan: Plan, report: RunReport, cap: int, why: str) -> Step:
    r"""Within what the plan foretold, corrected by what the run showed.

    .. math:: M' = \min\left(\frac{C}{\max(1, N / P)},\; P - 1\right)

    for a cap C, predicted peak P, and N that the run held together with what it asked for: where the run needed more
    than was foretold, the next plan's prediction is taken to be as far off.
    """
    assert plan.prediction is not None
    predicted = plan.prediction.memory.allocated.median_bytes
    held = max((peak.bytes for peak in report.resident.values()), default=0)
    needed = held + (report.requested_bytes or 0)
    limit = min(int(cap / max(1.0, needed / predicted)), predicted - 1)
    asked = f", {report.requested_bytes} more asked for" if report.requested_bytes else ""
    reason = (
        f"{why} in {report.last_phase or 'an unknown phase'} under a cap of {cap} bytes beside stacks: {held} "
        f"held{asked}, {predicted} predicted; the next plan may take {limit}"
    )
    return Step(action="less_memory", reason=reason, max_memory_bytes=limit)


def _more_precision(plan: Plan, report: RunReport) -> Step:
    assert plan.configuration is not None
    now = plan.configuration.precision
    wider = _MORE_PRECISION.get(now)
    c = plan.configuration
    if c.backend.name == "deepspeed" and (c.zero_stage == 0 or c.pipeline_parallel > 1):
        why = "DeepSpeed's checkpoints keep their precision without ZeRO and in pipelines"
        return Step(action="give_up", reason=f"{report.error} in {now}: {why}")
    if wider is None:
        return Step(action="give_up", reason=f"{report.error} in {now}: no wider precision is left")
    return Step(action="more_precision", reason=f"{report.error} in {now}: on in {wider}", precision=wider)
