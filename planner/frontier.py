"""Frontiers and ladders: many proven answers to one question, in one call.

A frontier holds what nothing beats on two axes; a ladder the fastest configuration for every number of devices, which
is what a scheduler asks before it allocates.
"""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from cost_models.calibration import Calibration
from cost_models.job import Job
from cost_models.placement import in_use
from cost_models.specs.base import Spec
from cost_models.specs.configuration import Configuration
from planner.fronts import POINTS, Axes, device_counts, front_problem, ladder_problem, of_rungs
from planner.plan import Envelope, Plan, Provenance, Status
from planner.planning import Asked, envelope, plan_of
from planner.prediction import predict, rounded
from planner.question import Question
from planner.request import PlanRequest

if TYPE_CHECKING:
    from solver.frontier import Front, Rung
    from solver.problem import Problem
    from solver.solution import Solution

Report = Callable[[str], None]


class Point(Spec):
    """One proven configuration."""

    gpus: int
    step_seconds: float
    allocated_bytes: int
    """Peak that the model allocates on the fullest rank, median."""
    conservative_bytes: int
    """What the device holds at the asked risk."""
    tokens_per_second: float
    cost_per_step: float | None = None
    """None without a price."""
    proven: bool
    configuration: Configuration


class Frontier(Spec):
    """The configurations that nothing beats on both axes, fastest first."""

    status: Status
    """`optimal`: every point is proven; `feasible`: a limit of the solver left some open; `infeasible`: no point."""
    axes: Axes
    points: tuple[Point, ...]
    complete: bool
    """Whether these are all that are not dominated."""
    text: str
    """Whether there are more, and how these were chosen."""
    request: Question
    provenance: Provenance
    envelope: Envelope


class LadderRung(Spec):
    """The fastest configuration on exactly so many devices, or why there is none."""

    gpus: int
    status: Status | Literal["unknown"]
    """`unknown`: a limit of the solver was reached before any was found."""
    reason: str | None = None
    point: Point | None = None


class Ladder(Spec):
    """One rung for every number of devices that was asked about, ascending. Step time is not monotone along it."""

    rungs: tuple[LadderRung, ...]
    request: Question
    provenance: Provenance
    envelope: Envelope


def frontier(
    request: PlanRequest,
    axes: Axes = ("time", "memory"),
    points: int = POINTS,
    calibration: Calibration | None = None,
    *,
    report: Report | None = None,
) -> Frontier:
    """At most `points` configurations of which none is beaten on both axes, each proven.

    Raises:
        SpecError: the request names something unknown, contradicts itself, or lacks a price that an axis needs.
        SolverError: the solver's answer failed verification.
    """
    started = time.perf_counter()
    asked, front = _front(request, axes, points, calibration, report)
    found = tuple(_point(asked, solution) for solution in front.points)
    proven = all(point.proven for point in found)
    return Frontier(
        status="infeasible" if not found else "optimal" if proven else "feasible",
        axes=axes,
        points=found,
        complete=front.complete,
        text=said(len(found), axes[1], front.complete),
        request=asked.resolved.question,
        provenance=asked.provenance(found[0].configuration if found else None, _ortools(front.points)),
        envelope=envelope(started),
    )


def frontier_plans(
    request: PlanRequest,
    axes: Axes = ("time", "memory"),
    points: int = POINTS,
    calibration: Calibration | None = None,
    *,
    report: Report | None = None,
) -> tuple[Plan, ...]:
    """The same points as whole plans, explained and ready to be exported."""
    started = time.perf_counter()
    asked, front = _front(request, axes, points, calibration, report)
    return tuple(plan_of(asked, solution, started) for solution in front.points)


def ladder(
    request: PlanRequest,
    low: int = 1,
    high: int | None = None,
    calibration: Calibration | None = None,
    *,
    report: Report | None = None,
) -> Ladder:
    """The fastest configuration for every number of devices from `low` to `high` (the cluster's) that is worth asking.

    Those are any number within a node, then whole nodes.

    Raises:
        SpecError: the request names something unknown or contradicts itself; no such number is in the range.
    """
    started = time.perf_counter()
    asked, problem = ladder_problem(request, low, high, calibration)
    rungs = _rungs(problem, report)
    solved = [rung.solution for rung in rungs if rung.solution is not None]
    best = next((s.configuration for s in reversed(solved) if s.configuration is not None), None)
    return Ladder(
        rungs=tuple(_rung(asked, problem, rung) for rung in rungs),
        request=asked.resolved.question,
        provenance=asked.provenance(best, _ortools(solved)),
        envelope=envelope(started),
    )


def _front(
    request: PlanRequest, axes: Axes, points: int, calibration: Calibration | None, report: Report | None
) -> tuple[Asked, "Front"]:
    from solver.frontier import time_cost, time_counts, time_memory

    asked, problem = front_problem(request, axes, points, calibration)
    other = axes[1]
    if other == "memory":
        return asked, time_memory(problem, points, report)
    if not of_rungs(problem, axes):
        return asked, time_cost(problem, points, report)
    return asked, time_counts(problem, _rungs(problem, report), other, points)


def _rungs(problem: "Problem", report: Report | None) -> "tuple[Rung, ...]":
    from solver.frontier import ladder as solved

    return solved(problem, device_counts(problem), report)


def _point(asked: Asked, solution: "Solution") -> Point:
    resolved, configuration = asked.resolved, solution.configuration
    assert configuration is not None
    risk = resolved.constraints.oom_risk
    predicted = predict(resolved.job, configuration, asked.calibration, oom_risk=risk, replay=False)
    step, gpus = predicted.time.step_seconds, configuration.world_size
    hourly = _price_per_hour(resolved.job, configuration)
    return Point(
        gpus=gpus,
        step_seconds=step,
        allocated_bytes=predicted.memory.allocated.median_bytes,
        conservative_bytes=predicted.memory.conservative_bytes,
        tokens_per_second=rounded(predicted.time.tokens_per_second_per_gpu * gpus),
        cost_per_step=None if hourly is None else rounded(step * hourly / 3600),
        proven=all(objective.proven for objective in solution.objectives),
        configuration=configuration,
    )


def _price_per_hour(job: Job, configuration: Configuration) -> float | None:
    """Of all devices in use; None where a pool has no price."""
    total = 0.0
    for pool, count in in_use(job, configuration).items():
        price = job.cluster.pools[pool].price_per_gpu_hour
        if price is None:
            return None
        total += price * count
    return total


def _rung(asked: Asked, problem: "Problem", rung: "Rung") -> LadderRung:
    from solver.frontier import on_exactly

    solution = rung.solution
    if solution is None:
        return LadderRung(gpus=rung.gpus, status="unknown", reason=rung.limit)
    if solution.configuration is None:
        return LadderRung(gpus=rung.gpus, status="infeasible", reason=_why(on_exactly(problem, rung.gpus)))
    return LadderRung(gpus=rung.gpus, status=solution.status, point=_point(asked, solution))


def _why(problem: "Problem") -> str:
    """What keeps a number of devices from having a plan, in a line."""
    from solver.conflicts import minimal_conflict
    from solver.forbidding import forbidding

    if len(problem.job.cluster.pools) > 1:
        return "no arrangement of the pools holds the job"
    rules = forbidding(problem)
    if rules:
        return f"{rules[0].backend}: {rules[0].text}"
    conflict = minimal_conflict(problem)
    if conflict:
        return "not enough: " + "; ".join(demand.text for demand in conflict)
    return f"nothing divides the batch and the model over {problem.resolved_domains['gpus']} devices"


def _ortools(solutions: "Sequence[Solution]") -> str:
    return solutions[0].ortools if solutions else "none"


def said(count: int, other: str, complete: bool) -> str:
    """Whether there are more points, and how these were chosen."""
    if not count:
        return "no configuration is feasible"
    if complete:
        return f"all {count} configurations that nothing beats on both axes"
    if other == "memory":
        return (
            f"{count} of more configurations that nothing beats on both axes: the fastest, the leanest, "
            "and between them the fastest under memory limits that divide the rest evenly"
        )
    return f"{count} of more configurations that nothing beats on both axes, evenly chosen in their order"
