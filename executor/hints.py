"""Hints from live data: what is out of the ordinary, the change that helps, and what it is predicted to do."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

from cost_models.calibration import Calibration
from cost_models.specs.base import Spec
from executor.creep import trend
from executor.errors import PlanRefused
from executor.measured import RankReport
from planner.plan import Plan

Name = Literal[
    "communication", "utilisation", "data_wait", "memory_creep", "straggler", "throttling", "accumulation", "offload",
    "other_model",
]  # fmt: skip


class Thresholds(Spec):
    """From where something is worth a hint. Shares are of the step."""

    communication: float = 0.30
    utilisation: float = 0.50
    """Of compute in a step, at least."""
    data_wait: float = 0.10
    memory_creep: float = 0.02
    """Growth of the resident size over the steps sampled, where it is a trend."""
    straggler: float = 1.15
    """Slowest process over the middle one."""
    throttling: float = 1.15
    """Recent steps over the timed ones."""
    celsius: float = 85.0
    accumulation: int = 8
    offload: float = 1.25
    """Measured over predicted."""
    other_model: float = 3.0
    """Allocated memory over that predicted, or the other way round: further off than any prediction has been."""


def thresholds(stated: Sequence[str]) -> Thresholds:
    """From NAME=VALUE.

    Raises:
        PlanRefused: no such threshold, or no number.
    """
    parts = [one.partition("=")[::2] for one in stated]
    try:
        return Thresholds.model_validate({n: int(v) if v.isdigit() else float(v) for n, v in parts})
    except ValueError:
        names = ", ".join(Thresholds.model_fields)
        raise PlanRefused(f"--threshold {' '.join(stated)}: give NAME=NUMBER with one of {names}") from None


@dataclass(frozen=True, slots=True)
class Hint:
    """One hint; the text names measured value, threshold, change and predicted effect."""

    name: Name
    text: str


@dataclass(frozen=True, slots=True)
class Seen:
    """What a rule looks at."""

    plan: Plan
    ranks: Sequence[RankReport]
    limits: Thresholds
    effect: Callable[[str], str]
    """Of the best change of a kind of decision, as a clause."""


def hints(
    plan: Plan, ranks: Sequence[RankReport], limits: Thresholds | None = None, calibration: Calibration | None = None
) -> tuple[Hint, ...]:
    """Everything worth saying, in a fixed order."""
    if not ranks:
        return ()

    @cache
    def effect(kind: str) -> str:
        return _effect(plan, kind, calibration)

    seen = Seen(plan, ranks, limits or Thresholds(), effect)
    return tuple(Hint(name, text) for name, rule in _RULES.items() if (text := rule(seen)))


def _communication(seen: Seen) -> str | None:
    share = max((rank.split.communication_share for rank in seen.ranks if rank.split), default=0.0)
    if share <= seen.limits.communication:
        return None
    return f"communication is {share:.0%} of the step, above {seen.limits.communication:.0%}: {seen.effect('traffic')}"


def _utilisation(seen: Seen) -> str | None:
    found = [r.split.compute / r.split.step_seconds for r in seen.ranks if r.split and r.split.step_seconds > 0]
    if not found or min(found) >= seen.limits.utilisation:
        return None
    return f"compute is {min(found):.0%} of the step, below {seen.limits.utilisation:.0%}: {seen.effect('batch')}"


def _data_wait(seen: Seen) -> str | None:
    step = _step(seen)
    waits = [rank.data_wait_seconds for rank in seen.ranks if rank.data_wait_seconds is not None]
    if not waits or step is None or max(waits) <= seen.limits.data_wait * step:
        return None
    workers = seen.plan.recommendations.dataloader_workers if seen.plan.recommendations else None
    change = f"load with {workers} workers" if workers else "load batches in worker processes"
    return (
        f"{max(waits):.3g} s pass between steps of {step:.3g} s, above {seen.limits.data_wait:.0%}: {change}; "
        f"at best a step is done every {step:.3g} instead of {step + max(waits):.3g} s"
    )


def _memory_creep(seen: Seen) -> str | None:
    trends = [found for rank in seen.ranks if (found := trend(rank.resident_samples)) is not None]
    fastest = max(trends, key=lambda found: found.growth, default=None)
    if fastest is None or fastest.growth <= seen.limits.memory_creep:
        return None
    assert seen.plan.prediction is not None
    left = (seen.plan.prediction.memory.usable_bytes - fastest.held) / fastest.per_step
    full = f"in about {left:.0f} more steps memory is full" if left > 0 else "memory is full already"
    return (
        f"memory grew by {fastest.growth:.1%} over the last {fastest.steps} steps, {fastest.per_step:.0f} bytes a "
        f"step, above {seen.limits.memory_creep:.1%}: detach what the loop keeps (losses, outputs); else {full}"
    )


def _straggler(seen: Seen) -> str | None:
    works = {rank.rank: rank.split.compute for rank in seen.ranks if rank.split}
    if len(works) < 2:
        return None
    slowest = max(works, key=lambda rank: works[rank])
    others = statistics.median(seconds for rank, seconds in works.items() if rank != slowest)
    if works[slowest] <= seen.limits.straggler * others:
        return None
    step = _step(seen) or works[slowest]
    return (
        f"rank {slowest} computes for {works[slowest]:.3g} s a step, the others for {others:.3g} s, above "
        f"{seen.limits.straggler:g} times: move it to another device; a step would take about "
        f"{max(others, step - works[slowest] + others):.3g} instead of {step:.3g} s"
    )


def _throttling(seen: Seen) -> str | None:
    hot = [rank.celsius for rank in seen.ranks if rank.celsius is not None]
    if hot and max(hot) >= seen.limits.celsius:
        return f"a device is at {max(hot):.0f} C, from {seen.limits.celsius:.0f}: cool it or lower its power limit"
    slower = [
        rank.recent_seconds / rank.times.median_seconds
        for rank in seen.ranks
        if rank.recent_seconds and rank.times.seconds
    ]
    if not slower or min(slower) <= seen.limits.throttling:
        return None
    return (
        f"every process takes {min(slower):.2f} times its timed steps, above {seen.limits.throttling:g}: look for "
        f"lower clocks or another job on the node; at the old pace a step is {1 - 1 / min(slower):.0%} shorter"
    )


def _accumulation(seen: Seen) -> str | None:
    assert seen.plan.configuration is not None
    steps = seen.plan.configuration.gradient_accumulation_steps
    if steps <= seen.limits.accumulation or seen.plan.configuration.pipeline_parallel > 1:
        return None
    return f"a step accumulates {steps} micro-batches, above {seen.limits.accumulation}: {seen.effect('batch')}"


def _offload(seen: Seen) -> str | None:
    assert seen.plan.prediction is not None
    foretold = seen.plan.prediction.time.breakdown_seconds.get("offload", 0.0)
    found = max((rank.split.offload for rank in seen.ranks if rank.split), default=0.0)
    if foretold <= 0 or found <= seen.limits.offload * foretold:
        return None
    return (
        f"offload takes {found:.3g} s of a step, {found / foretold:.2f} times the {foretold:.3g} s predicted, above "
        f"{seen.limits.offload:g}: {seen.effect('offload')}"
    )


def memory_ratio(plan: Plan, ranks: Sequence[RankReport]) -> float | None:
    """Measured over predicted allocated memory of the fullest process."""
    assert plan.prediction is not None
    found = max((rank.allocated.bytes for rank in ranks if rank.allocated), default=None)
    foretold = plan.prediction.memory.allocated.median_bytes
    return None if found is None or not foretold else found / foretold


def _other_model(seen: Seen) -> str | None:
    ratio, limit = memory_ratio(seen.plan, seen.ranks), seen.limits.other_model
    if ratio is None or 1 / limit <= ratio <= limit:
        return None
    sizes, assumed = seen.plan.request.model, seen.plan.request.training
    return (
        f"allocated memory is {ratio:.2g} times what was predicted, beyond {limit:g} times: was another model or batch "
        f"trained? Train the plan's ({sizes.num_hidden_layers} layers of {sizes.hidden_size}, sequences of "
        f"{assumed.sequence_length}), or plan for the one that is trained; then its figures can be compared"
    )


_RULES: Final[dict[Name, Callable[[Seen], str | None]]] = {
    "communication": _communication, "utilisation": _utilisation, "data_wait": _data_wait,
    "memory_creep": _memory_creep, "straggler": _straggler, "throttling": _throttling, "accumulation": _accumulation,
    "offload": _offload, "other_model": _other_model,
}  # fmt: skip
_DECISIONS: Final = {
    "traffic": ("zero_stage", "micro_batch_size", "tensor_parallel", "gradient_compression"),
    "batch": ("micro_batch_size", "recompute", "zero_stage"),
    "offload": ("optimizer_offload", "parameter_offload", "recompute", "zero_stage"),
}
"""What may help against each."""


def _effect(plan: Plan, kind: str, calibration: Calibration | None) -> str:
    """The change among those that the request allows and that still fit which is predicted to be fastest, if by more
    than predictions can tell apart; both times are predictions with the same constants.
    """
    from planner import calibrations
    from planner.allowed import outside_domains
    from planner.legality import violations
    from planner.neighbours import neighbours
    from planner.prediction import predict
    from planner.uncertainty import within_noise

    assert plan.configuration is not None
    job, constants = plan.request.job, calibration or calibrations.current()
    allowed = plan.request.constraints
    risk = allowed.oom_risk
    now = predict(job, plan.configuration, constants, oom_risk=risk, replay=False).time.step_seconds
    best: tuple[float, str] | None = None
    for one in neighbours(plan.configuration):
        if one.subject not in _DECISIONS[kind] or violations(job, one.configuration):
            continue
        if any(outside_domains(allowed, one.configuration)):
            continue
        foretold = predict(job, one.configuration, constants, oom_risk=risk, replay=False)
        seconds = foretold.time.step_seconds
        if foretold.memory.verdict == "fits" and (best is None or seconds < best[0]):
            best = seconds, f"{one.subject} {one.instead} instead of {one.chosen}"
    if best is None or within_noise(now / best[0] - 1, constants):
        return (
            "no single change that the request allows is predicted to be faster by more than predictions can tell "
            "apart; plan again with this run's measurements"
        )
    return f"{best[1]} is predicted to take {best[0]:.3g} s a step instead of {now:.3g} s"


def _step(seen: Seen) -> float | None:
    return max((rank.recent_seconds for rank in seen.ranks if rank.recent_seconds), default=None)
