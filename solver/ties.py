"""Ties: among configurations that are as good, or good enough, the simplest; of its layouts the plainest."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from solver.caps import Caps, caps
from solver.incumbent import Incumbent
from solver.layout import cost
from solver.objectives import Objective
from solver.plainest import plainest
from solver.problem import Problem
from solver.rounding import MEMORY_UNIT
from solver.run import Achieved, Run
from solver.simplicity import simplicity
from solver.space import BackendSpace
from solver.standing import Standing


def within(problem: Problem, values: Sequence[Achieved]) -> Caps:
    """What the tolerance of every objective leaves."""
    limit = caps(problem)
    for value in values:
        limit = limit.after(value.goal, value.exact, problem.objective_tolerance)
    return limit


def plainest_layout(problem: Problem, last: Standing, limit: Caps) -> tuple[Incumbent, bool]:
    """The winner with the plainest of its row's layouts that are as good, and whether that is proven."""
    found, goal = last.incumbent, last.question.objective
    assert found is not None
    held = limit.after(goal, found.value)
    most = held.max_memory_bytes
    plain = plainest(
        found.row,
        found.layout,
        problem.budget.row_deterministic_time,
        most_time=int(held.max_times(found.strategy)[0]),
        most_memory=None if most is None else int(most // MEMORY_UNIT),
    )
    return replace(found, layout=plain.layout, cost=cost(found.row, plain.layout)), plain.proven


def _tolerated(
    run: Run, values: Sequence[Achieved], legal: tuple[BackendSpace, ...], found: Incumbent
) -> tuple[tuple[BackendSpace, ...], Incumbent | None]:
    """The rows that may be within the tolerance of every objective, and where among them the winner is.

    An optimum in the number of devices left the rows with that number alone: those with some more come back, and with
    them a numbering of rows in which the winner has no place yet. Of rows that differ in their number of micro-batches
    all come back, as a reduction that never loses the optimum may lose a simpler tie.
    """
    problem = run.problem
    ranged = problem.job.training.batch_range.min != problem.job.training.batch_range.max
    counted = next((value.exact for value in values if value.goal.name == "gpus"), None)
    if (counted is None and not ranged) or problem.arrangement is not None:
        return legal, found
    if counted is not None:
        most = counted * (1 + Fraction(problem.objective_tolerance))
        counts = [int(n) for n in problem.resolved_domains["gpus"] or () if int(n) <= most]
        problem = replace(problem, domains=problem.domains.with_values(gpus=counts))
    return run.rows(problem, replace(run.pruning, accumulation=False)), None


def simplest(
    run: Run, chain: Sequence[Objective], values: Sequence[Achieved], legal: tuple[BackendSpace, ...], last: Standing
) -> Standing:
    """The simplest configuration within the tolerance of every objective; among equals the best by the last one.

    Levels of simplicity ascend, each is searched to the end: the first with a configuration is proven simplest.
    """
    limit, goal = within(run.problem, values), chain[-1]
    assert last.incumbent is not None
    legal, start = _tolerated(run, values, legal, last.incumbent)
    levels: set[int] = set()
    scores = []
    for space in legal:
        topology, feature = space.rows(np.arange(space.size))
        score = simplicity(space.strategy(topology, feature))
        scores.append((topology, feature, score))
        levels |= set(score.tolist())
    for level in sorted(levels):
        if level > last.incumbent.simplicity:
            return last
        narrowed = []
        for space, (topology, feature, score) in zip(legal, scores, strict=True):
            mask = np.zeros_like(space.legal)
            at = score == level
            mask[topology[at], feature[at]] = True
            narrowed.append(replace(space, legal=mask))
        found = run.search(goal, limit, narrowed, start if level == last.incumbent.simplicity else None)
        if found.incumbent is not None:
            return found
        if not run.counters.exhausted:
            return last
    return last
