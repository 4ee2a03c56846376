"""Frontiers: the configurations that nothing beats on two axes at once, each of them proven.

Time against memory by the epsilon constraint: the fastest configuration under a limit, then the leanest of those as
fast; the next limit lies below what that one takes. Time against devices or cost by the ladder: at a given number of
devices the fastest step is also the cheapest, so the best of every count hold the whole frontier.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from solver.caps import caps
from solver.dominance import Pruning
from solver.errors import LimitReached
from solver.incumbent import Incumbent
from solver.objectives import objective
from solver.problem import Problem
from solver.rows import prices
from solver.run import Achieved, Run
from solver.search import solution_of, solve
from solver.solution import ObjectiveValue, Solution
from solver.space import BackendSpace
from solver.standing import Question
from solver.sweep import Sweep
from solver.undominated import undominated
from solver.verify import verify

CLOSE = 1e-9
"""Relative distance at which two prices are the same."""
Told = Callable[[str], None]
"""Told of every point found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """Points of a frontier, fastest first. The objectives of each are its two axes, both proven unless it says so."""

    points: tuple[Solution, ...]
    complete: bool
    """Whether these are all that are not dominated; else there are more between them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """The best configuration on so many devices."""

    gpus: int
    solution: Solution | None
    """None when the budget ran out before any was found."""
    limit: str = ""


def time_memory(problem: Problem, points: int, told: Told | None = None) -> Front:
    """At most `points` points of time against the peak of allocated memory, the fastest and the leanest among them.

    Limits divide what lies between a point and the leanest evenly among the points still to come.
    """
    problem = replace(problem, alternatives=0)
    run = Run(problem, prices(None), Pruning(), None)
    legal = run.rows(problem)
    lean = run.search(objective("memory", problem), caps(problem), legal, last=False).incumbent
    if lean is None:
        return Front(points=(), complete=run.counters.exhausted)
    sweep = _Points(run, legal, lean, told)
    found, gaps = sweep.spread(points)
    while gaps and len(found) < points:
        found, gaps = sweep.filled(found, gaps, points)
    complete = run.counters.exhausted and found[-1].peak <= lean.cost.memory
    widest = sorted(gaps, key=lambda gap: gap[1] - gap[0].peak)
    complete = complete and not any(sweep.at(upper.peak - 1).peak > limit for upper, limit in widest)
    return Front(points=tuple(point.solution for point in found), complete=complete)


@dataclass(frozen=True, slots=True)
class _Point:
    solution: Solution
    peak: int
    """Allocated memory. [KiB]"""


Gap = tuple[_Point, int]
"""A point below which limits from its peak down to this one, exclusive, were not looked at. [KiB]"""


class _Points:
    """Points of time against memory, from one sweep."""

    def __init__(self, run: Run, legal: Sequence[BackendSpace], lean: Incumbent, told: Told | None) -> None:
        self.run, self.legal, self.told = run, legal, told
        self.time, self.memory = objective("throughput", run.problem), objective("memory", run.problem)
        self.lean = replace(lean, value=self.time.value(lean.strategy, lean.cost))
        limits = caps(run.problem)
        question = Question(problem=run.problem, spaces=legal, prices=run.prices, objective=self.time, caps=limits)
        self.sweep = Sweep(question, run.counters)

    def spread(self, points: int) -> tuple[list[_Point], list[Gap]]:
        """Points whose limits divide what is left above the leanest evenly, and what lies between them."""
        found, gaps = [self.at(None)], list[Gap]()
        while len(found) < points and found[-1].peak > self.lean.cost.memory:
            last = found[-1]
            limit = last.peak - max(1, (last.peak - self.lean.cost.memory) // (points - len(found)))
            if limit < last.peak - 1:
                gaps.append((last, limit))
            found.append(self.at(limit))
        return found, gaps

    def filled(self, found: list[_Point], gaps: list[Gap], points: int) -> tuple[list[_Point], list[Gap]]:
        """The next point below each of the widest gaps, where there is one, and the gaps that are left."""
        room = points - len(found)
        widest = sorted(gaps, key=lambda gap: gap[1] - gap[0].peak)[:room]
        left = [gap for gap in gaps if gap not in widest]
        for upper, limit in sorted(widest, key=lambda gap: -gap[1]):
            between = self.at(upper.peak - 1)
            if between.peak > limit:
                found = [*found, between]
                left += [(between, limit)] if limit < between.peak - 1 else []
        return sorted(found, key=lambda point: -point.peak), left

    def at(self, most: int | None) -> _Point:
        """The fastest configuration with at most so many KiB, and of those as fast the leanest."""
        fastest = self.sweep.fastest(most, None if most is None else self.lean)
        found = self.sweep.leanest(fastest, self.time, self.memory, most)
        assert fastest.incumbent is not None, "the leanest configuration is feasible"
        assert found.incumbent is not None, "the fastest one is as fast"
        verify(self.run.problem, found.incumbent)
        values = [
            Achieved(self.time, fastest.incumbent.value, fastest.bound),
            Achieved(self.memory, found.incumbent.value, found.bound),
        ]
        if self.told is not None:
            self.told(f"{float(values[0].exact) * self.time.scale:.6g} {self.time.unit}")
        return _Point(solution_of(self.run, self.legal, values, found), found.incumbent.cost.memory)


def ladder(problem: Problem, counts: Sequence[int], told: Told | None = None) -> tuple[Rung, ...]:
    """The fastest configuration on exactly so many devices, for every count."""
    rungs = []
    for count in counts:
        rungs.append(_rung(on_exactly(problem, count), count))
        if told is not None:
            told(f"{count} devices")
    return tuple(rungs)


def on_exactly(problem: Problem, count: int) -> Problem:
    """The fastest step on so many devices, as a problem."""
    domains = problem.domains.with_values(gpus=(count,))
    return replace(problem, objectives=("throughput",), domains=domains, alternatives=0)


def _rung(problem: Problem, count: int) -> Rung:
    try:
        return Rung(gpus=count, solution=solve(problem))
    except LimitReached as error:
        return Rung(gpus=count, solution=None, limit=str(error))


def time_cost(problem: Problem, points: int, told: Told | None = None) -> Front:
    """Time against the cost of a step where pools have prices of their own: a solve for every point.

    The fastest configuration below a price, then the cheapest of those as fast; prices divide what lies between a
    point and the cheapest evenly among the points still to come.
    """
    problem = replace(problem, alternatives=0)
    cheapest = solve(replace(problem, objectives=("cost", "throughput")))
    if cheapest.configuration is None:
        return Front(points=(), complete=True)
    least, found, complete = cheapest.value, list[Solution](), True
    limit: float | None = None
    while len(found) < points:
        limits = replace(problem.limits, max_cost_per_step=limit)
        found.append(solve(replace(problem, objectives=("throughput", "cost"), limits=limits)))
        if told is not None:
            told(f"{len(found)} of at most {points} points")
        last, left = found[-1].objectives[1].value, points - len(found)
        if last <= least * (1 + CLOSE):
            break
        complete = False
        limit = last - max(last * CLOSE, (last - least) / max(left, 1))
        limit = max(limit, least * (1 + CLOSE / 2))
    return Front(points=tuple(found), complete=complete)


def time_counts(problem: Problem, rungs: Sequence[Rung], axis: Literal["gpus", "cost"], points: int) -> Front:
    """The frontier of a ladder against the number of devices or the cost of a step, at most `points` of it.

    Of more, those are kept that divide their order evenly, the fastest and the cheapest among them.
    """
    found = [_with_axis(problem, rung, axis) for rung in rungs if rung.solution and rung.solution.configuration]
    kept, every = undominated([(one.objectives[0].value, one.objectives[1].value) for one in found], points)
    known = all(rung.solution is not None and rung.solution.status != "feasible" for rung in rungs)
    return Front(points=tuple(found[i] for i in kept), complete=every and known)


def _with_axis(problem: Problem, rung: Rung, axis: Literal["gpus", "cost"]) -> Solution:
    """The best of a rung with its second axis, which the first one fixes at a given number of devices."""
    assert rung.solution is not None
    time = rung.solution.objectives[0]
    if axis == "gpus":
        count = float(rung.gpus)
        other = ObjectiveValue(name="gpus", unit="gpus", value=count, bound=count)
    else:
        cost, per_time = objective("cost", problem), objective("throughput", problem)
        factor = rung.gpus * cost.scale / per_time.scale
        other = ObjectiveValue(name="cost", unit=cost.unit, value=time.value * factor, bound=time.bound * factor)
    return replace(rung.solution, objectives=(time, other))
