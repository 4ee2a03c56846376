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
    return {
        "status": "infeasible",
        "configuration": None,
        "prediction": None,
        "optimality": None,
        "assumptions": resolved.assumptions,
        "infeasibility": Infeasibility(
            conflict=conflicts(cause, miss), nearest_miss=miss, relaxations=tried(problem, told)
        ),
    }


def _silent(_: str) -> None:
    """Tell nobody."""


def tried(problem: "Problem", report: Callable[[str], None]) -> tuple[Relaxation, ...]:
    """Single changes, each solved again; a change that is a number is the least that works."""
    from solver.relaxations import LEVERS, relaxations

    found = []
    for lever in LEVERS:
        report(f"infeasible; trying another {lever.replace('_', ' ')}")
        for change in relaxations(problem, (lever,)):
            best = "" if change.configuration is None else short_name(change.configuration)
            least = "; less of it does not" if change.infeasible_before else ""
            found.append(
                Relaxation(
                    change=change.change.removesuffix(": still infeasible"),
                    verified=change.feasible,
                    text=f"{best}{least}" if change.feasible else "not enough",
                )
            )
    return tuple(found)


def conflicts(cause: "Cause", miss: NearestMiss | None) -> tuple[Conflict, ...]:
    """The demands that cannot all be met, with what the nearest miss lacks; the rules, where nothing is legal."""
    if not cause.conflict:
        rules = [
            Conflict(resource="legality", text=f"{rule.backend}: {rule.reason} ({rule.candidates} candidates)")
            for rule in cause.rules[:MOST_RULES]
        ]
        return tuple(rules) or (Conflict(resource="legality", text="the wishes leave no value for some decision"),)
    lacks = {c.resource: c for c in memory_conflicts(miss.memory)} if miss is not None else {}
    return tuple(_conflict(demand, lacks.get(demand.resource)) for demand in cause.conflict)


def _conflict(demand: "Demand", lack: Conflict | None) -> Conflict:
    return Conflict(resource=demand.resource, text=demand.text) if lack is None else lack


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
