"""Rivals: each runner-up as the best of its structure, which is the answer to the question with that structure pinned.

The search stops looking at a structure once it is beaten, so what it knows of one is some layout of some row. Whoever
pins the structure asks for its best; so do we, and both get the same figures.
"""

from dataclasses import replace
from typing import Any, Final

from solver.alternatives import TELLING
from solver.domains import requirement
from solver.errors import LimitReached
from solver.problem import Budget, Problem
from solver.search import solve
from solver.solution import Alternative, ObjectiveValue, Solution

BUDGET: Final = Budget(max_solves=200, row_deterministic_time=2.0)
"""Of one structure, which has a few hundred rows."""


def rivals(problem: Problem, solution: Solution) -> tuple[Alternative, ...]:
    """The runners-up of a solution, each the best of its structure, best first.

    Of several pools as the search left them: an arrangement of pools cannot be pinned.
    """
    if len(problem.job.cluster.pools) > 1:
        return solution.alternatives
    found = (_best(problem, solution.objectives[0], rival) for rival in solution.alternatives)
    return tuple(sorted(found, key=lambda rival: rival.value))


def pinned(problem: Problem, rival: Alternative) -> Problem:
    """The question with the structure of a runner-up pinned."""
    chosen = rival.configuration
    values: dict[str, Any] = {name: getattr(chosen, name) for name in TELLING if name != "backend"}
    values["backend"] = chosen.backend.name
    wishes = tuple(requirement(name, value) for name, value in values.items())
    return replace(
        problem,
        requirements=(*problem.requirements, *wishes),
        domains=problem.domains.with_values(gpus=(chosen.world_size,)),
        alternatives=0,
        budget=BUDGET,
    )


def _best(problem: Problem, winner: ObjectiveValue, rival: Alternative) -> Alternative:
    try:
        answer = solve(pinned(problem, rival))
    except LimitReached:
        return rival
    assert answer.configuration is not None, "the runner-up itself is one"
    first = answer.objectives[0]
    open_ = "" if first.proven else f"; no configuration of its structure is below {first.bound:.4g} {first.unit}"
    return Alternative(
        configuration=answer.configuration,
        value=first.value,
        loss=first.value / winner.value - 1 if winner.value else 0.0,
        why=_why(winner, first) + open_,
    )


def _why(ours: ObjectiveValue, theirs: ObjectiveValue) -> str:
    """The two values side by side."""
    more = theirs.value - ours.value
    if theirs.unit == "seconds per step":
        return f"its step takes {theirs.value:.4g} s, {more:+.4g} s against the plan's {ours.value:.4g} s"
    if theirs.unit == "bytes":
        sizes = [value / 2**30 for value in (theirs.value, more, ours.value)]
        return "its peak is {:.4g} GiB, {:+.4g} GiB against the plan's {:.4g} GiB".format(*sizes)
    return f"it takes {theirs.value:.4g} {theirs.unit}, {more:+.4g} against the plan's {ours.value:.4g}"
