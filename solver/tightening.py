"""Pass 2: the tight bound of rows, and the layout that reaches it; what reaches its bound is closed without CP-SAT."""

from dataclasses import replace

import numpy as np

from cost_models.arrays import FloatArray, IntArray
from solver.bounds.batch import Batch
from solver.bounds.cases import Bounds
from solver.bounds.holding import may_win, somehow
from solver.bounds.offload import refinable
from solver.bounds.peak import peak_bound
from solver.bounds.row import layout_of, row_bounds
from solver.groups import Group
from solver.rounding import above
from solver.space import BoolArray
from solver.standing import Open, Question, Standing

NEAR = 0.05
"""Rows ruled out by less than this share of the incumbent's value are remembered as possible runners-up."""


def tightened(question: Question, standing: Standing, group: Group, at: IntArray, *, fine: bool = False) -> list[Open]:
    """The rows of a group that stay open after their tight bound; better layouts become the incumbent."""
    if question.goal == "memory":
        return _by_peak(standing, group, at)
    if not fine:
        at = _held(question, standing, group, at)
        if not len(at):
            return []
        standing.counters.bounded += len(at)
    batch = group.batch(at)
    weights = question.objective.weights(group.rows.strategy.take(at))
    bounds = row_bounds(batch, standing.goal_limits(weights), fine=fine)
    time = question.goal == "time"
    lower = bounds.lower * weights if time else np.where(np.isfinite(bounds.lower), 0.0, np.inf)
    standing.learn(group, at, lower)
    reached = _offered(standing, group, at, batch, bounds, bounds.upper * weights)
    if standing.answered:
        return []
    goal_lower = np.where(np.isfinite(bounds.lower), bounds.lower, 0)
    rows = [
        Open(float(lower[k]), int(goal_lower[k]), group, int(at[k]), bounds.way[k])
        for k in np.nonzero(np.isfinite(lower))[0]
    ]
    standing.runners_up += [row for row in rows if row.way is not None]
    closed = set(at[reached & (bounds.lower == bounds.upper)].tolist()) if time else set()
    left = [row for row in rows if row.index not in closed and not standing.beaten(row.lower)]
    if left and not fine and refinable(group.shape):
        return tightened(question, standing, group, np.array([row.index for row in left]), fine=True)
    return left


def _held(question: Question, standing: Standing, group: Group, at: IntArray) -> IntArray:
    """Rows that pass the tests which need no tables: of memory while there is no incumbent, then of both."""
    batch = group.batch(at)
    if standing.incumbent is None and question.pruning.necessary_memory:
        fits = peak_bound(batch) <= batch.memory.capacity.max(axis=1)
        standing.learn(group, at[~fits], np.full(int((~fits).sum()), np.inf))
        return np.asarray(at[fits])
    weights = question.objective.weights(group.rows.strategy.take(at))
    limits = standing.goal_limits(weights)
    if limits is None or not question.pruning.holding:
        return at
    near = somehow(batch, limits * (1 + NEAR))
    standing.learn(group, at[~near], above(limits * (1 + NEAR))[~near] * weights[~near])
    at, limits, weights = at[near], limits[near], weights[near]
    if not len(at):
        return at
    held = may_win(batch.take(near), limits)
    standing.learn(group, at[~held], (limits + 1)[~held] * weights[~held])
    first = (group.rows.lower[at] * weights)[~held]
    standing.runners_up += [Open(lower, 0, group, int(i), None) for i, lower in zip(at[~held], first, strict=True)]
    return np.asarray(at[held])


def _offered(
    standing: Standing, group: Group, at: IntArray, batch: Batch, bounds: Bounds, values: FloatArray
) -> BoolArray:
    """Offer the layouts behind the upper bounds, best first, until one is beaten; which of the rows' are feasible."""
    feasible: BoolArray = np.isfinite(values)
    for k in np.lexsort((at, group.simplicity[at], values)):
        if not np.isfinite(values[k]) or standing.beaten(values[k]):
            break
        way = bounds.way[k]
        assert way is not None, "a finite upper bound has a layout"
        row = group.limited(batch.row(int(k)), int(at[k]))
        feasible[k] = standing.offer(group, int(at[k]), row, layout_of(batch.take([k]), *way))
        if standing.answered:
            break
    return feasible


def _by_peak(standing: Standing, group: Group, at: IntArray) -> list[Open]:
    """Rows by their least peak, which no layout is known to reach."""
    standing.counters.bounded += len(at)
    batch = group.batch(at)
    lower = peak_bound(batch)
    lower = np.where(lower <= batch.memory.capacity.max(axis=1), lower, np.inf)
    left = np.nonzero(~standing.beaten(lower))[0]
    if standing.incumbent is not None and len(left) and np.isfinite(batch.max_time).any():
        left = left[_in_time(batch.take(left), float(standing.incumbent.value))]
    return [Open(float(lower[k]), 0, group, int(at[k]), None) for k in left]


def _in_time(batch: Batch, most: float) -> BoolArray:
    """Rows that may be within their limit on the step with no more memory than the incumbent's. (n,)"""
    memory = replace(batch.memory, capacity=np.minimum(batch.memory.capacity, most))
    result: BoolArray = np.isfinite(row_bounds(replace(batch, memory=memory)).lower)
    return result
