"""Why this plan: what each choice buys and costs, by pricing its neighbours; what binds; why the runners-up lost."""

from collections.abc import Iterable
from itertools import groupby

from cost_models.calibration import Calibration
from cost_models.job import Job
from cost_models.ledger import estimate
from cost_models.specs.configuration import Configuration
from cost_models.units import gib
from planner.legality import violations
from planner.neighbours import Neighbour, neighbours, recompute_text
from planner.plan import Explanation, Prediction, Verdict
from planner.prediction import rounded, verdict

_VERDICTS: dict[Verdict, str] = {"fits": "fits", "at_risk": "is at risk of running out", "does_not_fit": "does not fit"}

_KERNELS = ("cross_entropy", "fused_kernels")


def explain(
    job: Job, configuration: Configuration, predicted: Prediction, calibration: Calibration, *, oom_risk: float
) -> tuple[Explanation, ...]:
    """The binding constraint, then one sentence for each neighbour."""
    compared = (_compared(job, neighbour, predicted, calibration, oom_risk) for neighbour in neighbours(configuration))
    return (binding(predicted), *(entry for entry in compared if entry is not None))


def binding(predicted: Prediction) -> Explanation:
    """What keeps the plan from being larger: the fullest instant of the fullest stage."""
    memory = predicted.memory
    largest = sorted(memory.breakdown_bytes.items(), key=lambda item: (-item[1], item[0]))[:3]
    terms = ", ".join(f"{name.replace('_', ' ')} {gib(size)}" for name, size in largest)
    spare = memory.usable_bytes - memory.conservative_bytes
    left = f"{gib(abs(spare))} {'free' if spare >= 0 else 'too much'}"
    return Explanation(
        kind="binding",
        subject="gpu_memory",
        text=(
            f"memory peaks in stage {memory.binding.stage} at {memory.binding.instant.replace('_', ' ')} "
            f"({memory.binding.phase.replace('_', ' ')}): {terms}; at the asked risk "
            f"{gib(memory.conservative_bytes)} of {gib(memory.usable_bytes)} are used, {left}"
        ),
    )


def _compared(
    job: Job, neighbour: Neighbour, predicted: Prediction, calibration: Calibration, oom_risk: float
) -> Explanation | None:
    """What the choice buys over the neighbour; None where the back end has no such kernel to choose."""
    head = f"{neighbour.subject} {neighbour.chosen} rather than {neighbour.instead}"
    broken = violations(job, neighbour.configuration)
    if broken and neighbour.subject in _KERNELS:
        return None
    if broken:
        return Explanation(kind="choice", subject=neighbour.subject, text=f"{head}: that is not legal, {broken[0]}")
    other = estimate(job, neighbour.configuration, calibration, oom_risk=oom_risk)
    memory = round(other.memory.conservative_bytes) - predicted.memory.conservative_bytes
    seconds = rounded(other.time.step_seconds - predicted.time.step_seconds)
    judged = verdict(other.memory)
    return Explanation(
        kind="choice",
        subject=neighbour.subject,
        text=f"{head}: {_bought(memory, seconds, predicted.time.step_seconds)}"
        + _fate(judged, predicted.memory.verdict),
        memory_delta_bytes=memory,
        step_delta_seconds=seconds,
        verdict=judged,
    )


def _bought(memory: int, seconds: float, step: float) -> str:
    """The trade in words, seen from the choice that was made."""
    parts = []
    if abs(memory) >= 2**20:
        parts.append(f"{'saves' if memory > 0 else 'takes'} {gib(abs(memory))}")
    share = seconds / step if step else 0.0
    if abs(share) >= 0.0005:
        parts.append(f"{'saves' if seconds > 0 else 'costs'} {abs(seconds):.3g} s a step ({abs(share):.1%})")
    return " and ".join(parts) or "no difference"


def _fate(other: Verdict, own: Verdict) -> str:
    return "" if other == own else f"; the other {_VERDICTS[other]}"


def short_name(c: Configuration) -> str:
    """A configuration in a line: the degrees above 1 and the choices that people compare."""
    parts: list[str] = [c.backend.name]
    for label, name in (
        ("tp", "tensor_parallel"), ("cp", "context_parallel"), ("pp", "pipeline_parallel"), ("ep", "expert_parallel"),
        ("vpp", "virtual_pipeline_stages"), ("dp", "data_parallel"),
    ):  # fmt: skip
        if getattr(c, name) > 1:
            parts.append(f"{label}{getattr(c, name)}")
    if any(stage.pool for stage in c.stages):
        held = (f"{sum(1 for _ in stages)} in pool {pool}" for pool, stages in groupby(s.pool for s in c.stages))
        parts.append(f"stages {' + '.join(held)}")
    parts += [f"zero{c.zero_stage}", f"mbs{c.micro_batch_size}x{c.gradient_accumulation_steps}"]
    if (text := recompute_text(c)) != "none":
        parts.append(f"recompute {text}")
    offloaded = sum(stage.optimizer_layers_offloaded for stage in c.stages)
    parts += [f"optimizer of {offloaded} layers offloaded"] if offloaded else []
    parts += ["parameters offloaded"] if c.parameter_offload else []
    return " ".join(parts)


def runners_up(rivals: Iterable[tuple[Configuration, str]]) -> tuple[Explanation, ...]:
    """One sentence for each rival, as the solver gives the reason."""
    return tuple(Explanation(kind="runner_up", subject=short_name(c), text=why) for c, why in rivals)
