"""Ladders, and frontiers made of them, from parts that are made apart: a rung for every number of devices.

A part is a ladder of one rung. The points of time against memory are no parts: they come from one sweep, in which each
limit lies below what the point before it takes.
"""

import time
from collections.abc import Sequence

from cost_models.calibration import Calibration
from planner.frontier import Frontier, Ladder, LadderRung, Point, said
from planner.fronts import Axes, asked_between, device_counts, front_problem, ladder_problem, of_rungs
from planner.plan import Envelope
from planner.planning import envelope
from planner.request import PlanRequest
from solver.undominated import undominated

NOTHING_SOLVED = "none"
"""The OR-Tools release of an answer for which nothing was solved."""


def ladder_parts(
    request: PlanRequest, low: int = 1, high: int | None = None, calibration: Calibration | None = None
) -> tuple[int, ...]:
    """The numbers of devices whose rungs make up a ladder."""
    _, problem = ladder_problem(request, low, high, calibration)
    return device_counts(problem)


def ladder_of(
    parts: Sequence[Ladder],
    request: PlanRequest,
    low: int = 1,
    high: int | None = None,
    calibration: Calibration | None = None,
) -> Ladder:
    """The ladder as `frontier.ladder` makes it in one."""
    started = time.perf_counter()
    asked, rungs = asked_between(request, calibration, low, high), _rungs(parts)
    best = next((rung.point.configuration for rung in reversed(rungs) if rung.point is not None), None)
    return Ladder(
        rungs=rungs,
        request=asked.resolved.question,
        provenance=asked.provenance(best, _ortools(parts)),
        envelope=_worked(parts, started),
    )


def frontier_parts(
    request: PlanRequest, axes: Axes, points: int, calibration: Calibration | None = None
) -> tuple[int, ...]:
    """The numbers of devices whose rungs make up a frontier; none when its points depend on one another."""
    _, problem = front_problem(request, axes, points, calibration)
    return device_counts(problem) if of_rungs(problem, axes) else ()


def frontier_of(
    parts: Sequence[Ladder], request: PlanRequest, axes: Axes, points: int, calibration: Calibration | None = None
) -> Frontier:
    """The frontier as `frontier.frontier` makes it in one."""
    started = time.perf_counter()
    asked, _ = front_problem(request, axes, points, calibration)
    rungs = _rungs(parts)
    best = [rung.point for rung in rungs if rung.point is not None]
    kept, every = undominated([(point.step_seconds, _other(point, axes)) for point in best], points)
    found = tuple(best[i] for i in kept)
    complete = every and all(rung.status not in {"unknown", "feasible"} for rung in rungs)
    proven = all(point.proven for point in found)
    return Frontier(
        status="infeasible" if not found else "optimal" if proven else "feasible",
        axes=axes,
        points=found,
        complete=complete,
        text=said(len(found), axes[1], complete),
        request=asked.resolved.question,
        provenance=asked.provenance(
            found[0].configuration if found else None, _ortools(parts) if found else NOTHING_SOLVED
        ),
        envelope=_worked(parts, started),
    )


def _rungs(parts: Sequence[Ladder]) -> tuple[LadderRung, ...]:
    return tuple(sorted((rung for part in parts for rung in part.rungs), key=lambda rung: rung.gpus))


def _other(point: Point, axes: Axes) -> float:
    if axes[1] == "gpus":
        return point.gpus
    assert point.cost_per_step is not None, "the axis cost needs prices"
    return point.cost_per_step


def _ortools(parts: Sequence[Ladder]) -> str:
    return next(
        (part.provenance.ortools for part in parts if part.provenance.ortools != NOTHING_SOLVED), NOTHING_SOLVED
    )


def _worked(parts: Sequence[Ladder], started: float) -> Envelope:
    """Where it was put together; how long all of its parts took."""
    here = envelope(started)
    seconds = here.solve_seconds + sum(part.envelope.solve_seconds for part in parts)
    return here.model_copy(update={"solve_seconds": seconds})
