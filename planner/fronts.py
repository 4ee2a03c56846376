"""What frontiers and ladders ask of the solver, with all that can be told of it before it is worked on."""

from typing import TYPE_CHECKING, Final, Literal

from cost_models.calibration import Calibration
from cost_models.errors import BrokenRule, MissingKey, within
from planner.planning import Asked
from planner.problem import problem_of
from planner.request import PlanRequest
from planner.resolve import cluster_of

if TYPE_CHECKING:
    from solver.problem import Problem

Axis = Literal["time", "memory", "gpus", "cost"]
Axes = tuple[Literal["time"], Literal["memory", "gpus", "cost"]]
AXES: Final[tuple[Axes, ...]] = (("time", "memory"), ("time", "gpus"), ("time", "cost"))
POINTS: Final = 20
MOST_POINTS: Final = 200
MOST_RUNGS: Final = 1024
"""Of one ladder: each rung is a proof of its own."""


def asked_between(request: PlanRequest, calibration: Calibration | None, low: int | None, high: int | None) -> Asked:
    """The request with the objective of every point, and the range of devices where there is one."""
    constraints = request.constraints
    if low is not None:
        with within("cluster"):
            cluster = cluster_of(request.cluster)[0].gpus
        most = min(high or cluster, constraints.max_gpus or cluster, cluster)
        least = max(low, constraints.min_gpus or 1)
        if high is not None and high > most:
            held = f"constraints.max_gpus {most}" if most < cluster else f"the {cluster} GPUs of the cluster"
            raise BrokenRule(f"gpus: {low}..{high} goes beyond {held}").at("high")
        if least > most:
            rule = f"gpus: {least}..{most} is no range within the {cluster} GPUs of the cluster"
            raise BrokenRule(rule).at("low")
        constraints = constraints.model_copy(update={"min_gpus": least, "max_gpus": most})
    changes = {"objective": "throughput", "objective_tolerance": 0.0, "constraints": constraints}
    return Asked.of(request.model_copy(update=changes), calibration)


def ladder_problem(
    request: PlanRequest, low: int, high: int | None, calibration: Calibration | None
) -> "tuple[Asked, Problem]":
    """The problem that a ladder is of.

    Raises:
        SpecError: there is no ladder of this range.
    """
    asked = asked_between(request, calibration, low, high)
    problem = problem_of(asked.resolved, asked.calibration)
    with within("low" if high is None else "high"):
        _check_rungs(problem)
    return asked, problem


def _check_rungs(problem: "Problem") -> None:
    """One pool's numbers of devices are counted; of several, nearly every number is the sum of some."""
    from solver.arrangement import pool_counts

    pools, limits = problem.job.cluster.pools, problem.limits
    least, most = limits.min_gpus or 1, limits.max_gpus or problem.job.cluster.gpus
    count = most - least + 1
    if len(pools) == 1:
        count = sum(least <= number <= most for number in pool_counts(pools[0]))
    if count == 0:
        raise BrokenRule(f"gpus: no number of whole nodes is between {least} and {most}")
    if count > MOST_RUNGS:
        raise BrokenRule(f"gpus: {least}..{most} has {count} rungs, more than the {MOST_RUNGS} of one answer")


def front_problem(
    request: PlanRequest, axes: Axes, points: int, calibration: Calibration | None
) -> "tuple[Asked, Problem]":
    """The problem that a frontier is of.

    Raises:
        SpecError: there is no frontier of this cluster on these axes.
    """
    if axes not in AXES:
        rule = f"axes {','.join(axes)}: choose one of {' '.join(','.join(pair) for pair in AXES)}"
        raise BrokenRule(rule).at("axes")
    if not 2 <= points <= MOST_POINTS:
        raise BrokenRule(f"points {points} is not between 2 and {MOST_POINTS}").at("points")
    other = axes[1]
    asked = asked_between(request, calibration, None if other == "memory" else 1, None)
    problem = problem_of(asked.resolved, asked.calibration)
    if other == "memory" and len(problem.job.cluster.pools) > 1:
        rule = f"axes time,memory is for one pool, cluster.pools lists {len(problem.job.cluster.pools)}"
        raise BrokenRule(rule).at("axes")
    for index, pool in enumerate(problem.job.cluster.pools):
        if other == "cost" and pool.price_per_gpu_hour is None:
            missing = MissingKey("price_per_gpu_hour", f"cluster.pools.{index}", "the axis cost needs it")
            raise missing.at("cluster", "pools", str(index), "price_per_gpu_hour")
    if of_rungs(problem, axes):
        with within("cluster"):
            _check_rungs(problem)
    return asked, problem


def of_rungs(problem: "Problem", axes: Axes) -> bool:
    """Whether the frontier is made of the best of every number of devices."""
    return axes[1] == "gpus" or (axes[1] == "cost" and len(problem.job.cluster.pools) == 1)


def device_counts(problem: "Problem") -> tuple[int, ...]:
    """The numbers of devices that a ladder asks about.

    Raises:
        BrokenRule: there is none in the range.
    """
    counts = tuple(int(n) for n in problem.resolved_domains["gpus"] or ())
    if not counts:
        limits = problem.limits
        raise BrokenRule(f"gpus: no number of whole nodes is between {limits.min_gpus} and {limits.max_gpus}")
    return counts
