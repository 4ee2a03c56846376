"""Why there is no plan: what binds and by how much, the nearest miss, and single changes that were tried."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cost_models.calibration import Calibration
from cost_models.units import gib
from planner.explain import short_name
from planner.plan import Conflict, Infeasibility, MemoryPrediction, NearestMiss, Phase, Relaxation
from planner.prediction import predict
from planner.resolve import ResolvedRequest

if TYPE_CHECKING:
    from solver.conflicts import Demand
    from solver.conflicts import Explanation as Cause
    from solver.problem import Problem

MEMORIES = {"device_memory": "gpu_memory", "host_memory": "host_memory"}
"""Lever -> resource."""
MOST_RULES = 5
"""Legality rules that are listed where nothing is legal."""


def explain_infeasible(
    resolved: ResolvedRequest,
    calibration: Calibration,
    problem: "Problem",
    report: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """The parts of a plan whose status is infeasible."""
    from solver.conflicts import explain

    told = report or _silent
    told("infeasible; looking for the conflict")
    cause = explain(problem)
    miss = None
    if cause.nearest_miss is not None:
        chosen = cause.nearest_miss.configuration
        predicted = predict(resolved.job, chosen, calibration, oom_risk=problem.oom_risk)
        miss = NearestMiss(configuration=chosen, memory=predicted.memory, step_seconds=predicted.time.step_seconds)
    changes, least = tried(problem, cause, told)
    return {
        "status": "infeasible",
        "configuration": None,
        "prediction": None,
        "optimality": None,
        "assumptions": resolved.assumptions,
        "infeasibility": Infeasibility(
            conflict=conflicts(cause, miss, _missing(problem, least)), nearest_miss=miss, relaxations=changes
        ),
    }


def _silent(_: str) -> None:
    """Tell nobody."""


def tried(
    problem: "Problem", cause: "Cause", report: Callable[[str], None]
) -> tuple[tuple[Relaxation, ...], dict[str, int]]:
    """Single changes, each solved again, and the least bytes of each memory that suffice.

    More of a memory that has no part in the conflict cannot help: the conflict stands without it.
    """
    from solver.relaxations import LEVERS, relaxations

    binding = {demand.resource for demand in cause.conflict}
    found: list[Relaxation] = []
    least: dict[str, int] = {}
    for lever in LEVERS:
        if lever in MEMORIES and MEMORIES[lever] not in binding:
            continue
        report(f"infeasible; trying another {lever.replace('_', ' ')}")
        for change in relaxations(problem, (lever,)):
            best = "" if change.configuration is None else short_name(change.configuration)
            if lever in MEMORIES and isinstance(change.value, int):
                least[MEMORIES[lever]] = change.value
            exact = "; less of it does not" if change.infeasible_before else ""
            found.append(
                Relaxation(
                    change=change.change.removesuffix(": still infeasible"),
                    verified=change.feasible,
                    text=f"{best}{exact}" if change.feasible else "not enough",
                )
            )
    return tuple(found), least


def _missing(problem: "Problem", least: dict[str, int]) -> dict[str, int]:
    """Least bytes of each memory that suffice, beyond what there is."""
    pool = problem.job.pool
    has = {"gpu_memory": pool.device.usable_memory_bytes, "host_memory": pool.host_memory_bytes}
    return {resource: size - has[resource] for resource, size in least.items()}


def conflicts(cause: "Cause", miss: NearestMiss | None, missing: dict[str, int]) -> tuple[Conflict, ...]:
    """The demands that cannot all be met, with what the nearest miss lacks; the rules, where nothing is legal."""
    if not cause.conflict:
        rules = [
            Conflict(resource="legality", text=f"{rule.backend}: {rule.reason} ({rule.candidates} candidates)")
            for rule in cause.rules[:MOST_RULES]
        ]
        return tuple(rules) or (Conflict(resource="legality", text="the wishes leave no value for some decision"),)
    lacks = {c.resource: c for c in memory_conflicts(miss.memory)} if miss is not None else {}
    return tuple(
        lacks.get(demand.resource) or _demand(demand, missing.get(demand.resource)) for demand in cause.conflict
    )


def _demand(demand: "Demand", short: int | None) -> Conflict:
    text = demand.text if short is None else f"{demand.text}: short of {gib(short)}"
    return Conflict(resource=demand.resource, text=text, shortfall_bytes=short)


def memory_conflicts(memory: MemoryPrediction) -> tuple[Conflict, ...]:
    """What a configuration lacks, on the device and on the host, by phase."""
    found = []
    lack = memory.conservative_bytes - memory.usable_bytes
    if lack > 0:
        needed, usable = gib(memory.conservative_bytes), gib(memory.usable_bytes)
        found.append(
            Conflict(
                resource="gpu_memory",
                text=f"short of {gib(lack)} per GPU, {needed} needed at the asked risk, {usable} usable",
                shortfall_bytes=lack,
                phase_shortfall_bytes=_by_phase(memory),
            )
        )
    short = memory.host_bytes - memory.host_usable_bytes
    if short > 0:
        needed, usable = gib(memory.host_bytes), gib(memory.host_usable_bytes)
        text = f"short of {gib(short)} per node, {needed} needed, {usable} usable"
        found.append(Conflict(resource="host_memory", text=text, shortfall_bytes=short))
    return tuple(found)


def _by_phase(memory: MemoryPrediction) -> dict[Phase, int]:
    """Shortfall of every phase that lacks memory, at the margins of the peak. [bytes]"""
    fixed = memory.device.median_bytes - memory.reserved.median_bytes
    margin = (memory.conservative_bytes - fixed) / memory.allocated.median_bytes
    lacks = {phase: round(size * margin + fixed - memory.usable_bytes) for phase, size in memory.phases.items()}
    return {phase: lack for phase, lack in lacks.items() if lack > 0}
