"""Why there is no plan: what binds and by how much, the nearest miss, and single changes that were tried."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cost_models.calibration import Calibration
from cost_models.units import gib
from planner.plan import Conflict, Infeasibility, MemoryPrediction, NearestMiss, Phase, Prediction
from planner.prediction import predict
from planner.relaxations import try_all, with_pool
from planner.resolve import ResolvedRequest

if TYPE_CHECKING:
    from solver.problem import Problem
    from solver.solution import Solution

ROOMY = 64
"""Factor on the memory of device and host under which the least hungry configuration is looked for."""


def explain_infeasible(
    resolved: ResolvedRequest,
    calibration: Calibration,
    problem: "Problem",
    solution: "Solution",
    *,
    report: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """The parts of a plan whose status is infeasible."""
    nearest = nearest_miss(problem, calibration)
    conflict = list(memory_conflicts(nearest[1].memory)) if nearest is not None else []
    if problem.limits.max_step_seconds is not None and not conflict:
        text = f"no configuration that fits takes at most {problem.limits.max_step_seconds} s a step"
        conflict.append(Conflict(resource="max_step_seconds", text=text))
    if nearest is None:
        conflict += legality_conflicts(solution)
    miss = None
    if nearest is not None:
        configuration, predicted = nearest
        miss = NearestMiss(
            configuration=configuration, memory=predicted.memory, step_seconds=predicted.time.step_seconds
        )
    return {
        "status": "infeasible",
        "configuration": None,
        "prediction": None,
        "optimality": None,
        "assumptions": resolved.assumptions,
        "infeasibility": Infeasibility(
            conflict=tuple(conflict), nearest_miss=miss, relaxations=try_all(problem, report)
        ),
    }


def nearest_miss(problem: "Problem", calibration: Calibration) -> "tuple[Any, Prediction] | None":
    """The configuration that needs least memory, were there room, priced on the real device; None if none is legal."""
    from solver.search import solve

    job = problem.job
    device = job.device.model_copy(
        update={
            "usable_memory_bytes": job.device.usable_memory_bytes * ROOMY,
            "total_memory_bytes": job.device.total_memory_bytes * ROOMY,
        }
    )
    cluster = with_pool(job, device=device, host_memory_bytes=job.pool.host_memory_bytes * ROOMY)
    roomy = replace(
        problem,
        job=replace(job, cluster=cluster),
        objectives=("memory",),
        objective_tolerance=0.0,
        limits=replace(problem.limits, max_step_seconds=None, max_memory_bytes=None),
        alternatives=0,
    )
    found = solve(roomy)
    if found.configuration is None:
        return None
    return found.configuration, predict(job, found.configuration, calibration, oom_risk=problem.oom_risk)


def memory_conflicts(memory: MemoryPrediction) -> tuple[Conflict, ...]:
    """What a configuration lacks, on the device and on the host, by phase."""
    found = []
    lack = memory.conservative_bytes - memory.usable_bytes
    if lack > 0:
        found.append(
            Conflict(
                resource="gpu_memory",
                text=(
                    f"short of {gib(lack)} per GPU: {gib(memory.conservative_bytes)} needed at the asked risk, "
                    f"{gib(memory.usable_bytes)} usable"
                ),
                shortfall_bytes=lack,
                phase_shortfall_bytes=_by_phase(memory),
            )
        )
    short = memory.host_bytes - memory.host_usable_bytes
    if short > 0:
        text = (
            f"short of {gib(short)} per node: {gib(memory.host_bytes)} needed, {gib(memory.host_usable_bytes)} usable"
        )
        found.append(Conflict(resource="host_memory", text=text, shortfall_bytes=short))
    return tuple(found)


def _by_phase(memory: MemoryPrediction) -> dict[Phase, int]:
    """Shortfall of every phase that lacks memory, at the margins of the peak. [bytes]"""
    fixed = memory.device.median_bytes - memory.reserved.median_bytes
    margin = (memory.conservative_bytes - fixed) / memory.allocated.median_bytes
    lacks = {phase: round(size * margin + fixed - memory.usable_bytes) for phase, size in memory.phases.items()}
    return {phase: lack for phase, lack in lacks.items() if lack > 0}


def legality_conflicts(solution: "Solution") -> list[Conflict]:
    """The rules that dropped most candidates, where no candidate is legal."""
    worst = sorted(solution.dropped, key=lambda rule: (-rule.candidates, rule.backend, rule.rule))[:5]
    return [
        Conflict(resource="legality", text=f"{rule.backend}: {rule.reason} ({rule.candidates} candidates)")
        for rule in worst
    ] or [Conflict(resource="legality", text="the wishes leave no value for some decision")]
