"""Why there is no plan: what binds and by how much, the nearest miss, and single changes that were tried."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cost_models.calibration import Calibration
from cost_models.units import gib
from planner.applying import settings_of
from planner.constraints import DECISIONS
from planner.explain import short_name
from planner.plan import Conflict, Infeasibility, MemoryPrediction, NearestMiss, Phase, Relaxation
from planner.prediction import predict
from planner.resolve import ResolvedRequest

if TYPE_CHECKING:
    from solver.conflicts import Demand
    from solver.conflicts import Explanation as Cause
    from solver.problem import Problem
    from solver.relaxations import Relaxation as Change

MEMORIES = {"device_memory": "gpu_memory", "host_memory": "host_memory"}
"""Lever -> resource."""
MOST_RULES = 8
"""Legality rules that are listed where nothing is legal."""


def explain_infeasible(
    resolved: ResolvedRequest,
    calibration: Calibration,
    problem: "Problem",
    report: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """The parts of a plan whose status is infeasible."""
    from solver.caps import caps
    from solver.conflicts import explain
    from solver.part import with_parts
    from solver.refuted import Refuted

    told = report or _silent
    problem = replace(problem, refuted=(refuted := Refuted()))
    refuted.add(with_parts(problem), caps(problem))
    told("infeasible; looking for the conflict")
    cause = explain(problem)
    miss = None
    if cause.nearest_miss is not None:
        chosen = cause.nearest_miss.configuration
        predicted = predict(resolved.job, chosen, calibration, oom_risk=problem.oom_risk)
        miss = NearestMiss(configuration=chosen, memory=predicted.memory, step_seconds=predicted.time.step_seconds)
    changes, least = tried(problem, cause, told)
    conflict = conflicts(cause, miss, _missing(problem, least)) + _unsplit(problem, cause, changes)
    return _answer(resolved, Infeasibility(conflict=conflict, nearest_miss=miss, relaxations=changes))


def _answer(resolved: ResolvedRequest, why: Infeasibility) -> dict[str, Any]:
    return {
        "status": "infeasible",
        "configuration": None,
        "prediction": None,
        "optimality": None,
        "assumptions": resolved.assumptions,
        "infeasibility": why,
    }


def _unsplit(problem: "Problem", cause: "Cause", changes: tuple[Relaxation, ...]) -> tuple[Conflict, ...]:
    """Said where rules leave only splits over the devices that the batch does not divide into."""
    key, batch = "training.global_batch_size", problem.job.training.batch_range.max
    if not cause.forbidden or not any(c.verified and c.change.startswith(key) for c in changes):
        return ()
    gpus = problem.job.cluster.gpus
    text = f"{key}: {batch} sequences do not divide into the data-parallel ranks that these rules leave of {gpus} GPUs"
    return (Conflict(resource="global_batch_size", text=text),)


def _silent(_: str) -> None:
    """Tell nobody."""


def tried(
    problem: "Problem", cause: "Cause", report: Callable[[str], None]
) -> tuple[tuple[Relaxation, ...], dict[str, int]]:
    """Single changes, each solved again, and the least bytes of each memory that suffice.

    The wishes of the conflict come first, each dropped alone. More of a memory that has no part in the conflict cannot
    help, nor a lever that moves nothing which the forbidding rules read: the conflict stands without it.
    """
    from solver.forbidding import may_help
    from solver.other_splits import other_splits
    from solver.pairs import pairs
    from solver.relaxations import LEVERS, relaxations, without_wishes

    binding = {demand.resource for demand in cause.conflict}
    report("infeasible; trying without each wish")
    found = [_tried(problem, change) for change in cause.limits]
    found += [_tried(problem, change) for change in without_wishes(problem, [demand.text for demand in cause.conflict])]
    least: dict[str, int] = {}
    singles: list[Change] = []
    for lever in LEVERS:
        unbound = lever in MEMORIES and MEMORIES[lever] not in binding
        if unbound or not may_help(lever, cause.forbidden):
            continue
        report(f"infeasible; trying another {lever.replace('_', ' ')}")
        singles += relaxations(problem, (lever,))
    for change in singles:
        if change.lever in MEMORIES and isinstance(change.value, int):
            least[MEMORIES[change.lever]] = change.value
        found.append(_tried(problem, change))
    alone = len(problem.job.cluster.pools) == 1
    if alone and cause.forbidden and may_help("gpus", cause.forbidden):
        found += [_tried(problem, change) for change in other_splits(problem)]
    if alone and not cause.forbidden:
        report("infeasible; trying pairs of changes")
        found += [_tried(problem, change) for change in pairs(problem, singles)]
    return tuple(found), least


def _tried(problem: "Problem", change: "Change") -> Relaxation:
    best = "" if change.configuration is None else short_name(change.configuration)
    exact = "; one step less does not" if change.infeasible_before else ""
    return Relaxation(
        change=change.change.removesuffix(": still infeasible"),
        verified=change.feasible,
        text=f"{best}{exact}" if change.feasible else "not enough",
        settings=settings_of(problem, change),
    )


def _missing(problem: "Problem", least: dict[str, int]) -> dict[str, int]:
    """Least bytes of each memory that suffice, beyond what there is."""
    pool = problem.job.cluster.pools[0]
    has = {"gpu_memory": pool.device.usable_memory_bytes, "host_memory": pool.host_memory_bytes}
    return {resource: size - has[resource] for resource, size in least.items()}


def conflicts(cause: "Cause", miss: NearestMiss | None, missing: dict[str, int]) -> tuple[Conflict, ...]:
    """The demands that cannot all be met, with what the nearest miss lacks; the rules, where nothing is legal."""
    rules = tuple(
        Conflict(resource="legality", text=f"{rule.backend}: {rule.text} [{rule.source}]")
        for rule in cause.forbidden[:MOST_RULES]
    )
    if not cause.conflict:
        return rules or (Conflict(resource="legality", text="the wishes leave no value for some decision"),)
    lacks = {c.resource: c for c in memory_conflicts(miss.memory)} if miss is not None else {}
    if not cause.legal and not rules and {demand.resource for demand in cause.conflict} <= DECISIONS.keys():
        rules = (Conflict(resource="legality", text="no way to split the devices and the batch has these values"),)
    asked = tuple(
        lacks.get(demand.resource) or _demand(demand, missing.get(demand.resource)) for demand in cause.conflict
    )
    return asked + rules


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
