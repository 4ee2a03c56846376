"""Cases: rows under one way to recompute and one level of offload each. Those of a kind are bounded together.

A row's bound is the least over its cases; cases whose quick bound is above the row's limit, or above what another case
is known to reach, are left out.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cost_models.arrays import FloatArray, IntArray
from solver.bounds import offload
from solver.bounds.batch import Batch, windows
from solver.bounds.offload import Level
from solver.bounds.quick import quick_tail, quick_time
from solver.bounds.stage import CountRange, Tables, count_range
from solver.bounds.step import Stages, fixed, free, split
from solver.bounds.ways import Way, stage_times, ways

CELLS = 1_500_000
"""Numbers in one table of cases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Bounds on v times the step, in ticks."""

    lower: FloatArray
    upper: FloatArray
    """Value of a feasible layout, where one was found; infinite otherwise."""
    way: tuple[tuple[Way, Level] | None, ...]
    """Of the layout behind `upper`."""


def bounded(batch: Batch, limit: FloatArray, levels: Level) -> Bounds:
    """The least over these levels and all ways to recompute."""
    every = ways(batch.shape)
    cases = _Cases(batch, limit, levels, [way.counting(n) for way in every for n in np.ravel(way.count).tolist()])
    first = 0
    for way in every:
        cases.look(way, first)
        first += np.size(way.count)
    return Bounds(lower=cases.lower, upper=cases.upper, way=tuple(cases.chosen()))


@dataclass(slots=True)
class _Cases:
    """What is known of the rows from the cases that were looked at. A case's turn settles which of equals is chosen."""

    batch: Batch
    limit: FloatArray
    levels: Level
    every: list[Way]
    tables: Tables = field(init=False)
    lower: FloatArray = field(init=False)
    upper: FloatArray = field(init=False)
    turn: IntArray = field(init=False)

    def __post_init__(self) -> None:
        """Nothing is known."""
        n = len(self.batch)
        self.tables, self.turn = Tables(self.batch), np.zeros(n, dtype=np.int64)
        self.lower, self.upper = np.full(n, np.inf), np.full(n, np.inf)

    def chosen(self) -> Iterator[tuple[Way, Level] | None]:
        """The way and level behind each upper bound."""
        for upper, turn in zip(self.upper.tolist(), self.turn.tolist(), strict=True):
            level, way = divmod(turn, len(self.every))
            yield (self.every[way], self.levels.take(level)) if upper < np.inf else None

    def look(self, way: Way, first: int) -> None:
        """Bound all rows at all levels under a way, with any of its counts; `first` is the turn of its first."""
        counts = np.ravel(way.count)
        quick = self._quick(way.counting(counts[:, None]))
        near = quick <= self._most
        self.lower = np.minimum(self.lower, np.where(near, np.inf, quick).min(axis=(0, 1)))
        level, row = np.nonzero(near.any(axis=0))
        shape = self.batch.shape
        stages = windows(shape).length.size
        for at in _portions(len(row), CELLS // (stages * len(self.batch.memory.selector))):
            k, i = level[at], row[at]
            mine = quick[:, k, i]
            left = (mine <= self._most[i]).any(axis=0)
            k, i, mine = k[left], i[left], mine[:, left]
            if not len(i):
                continue
            tables = self.tables if np.array_equal(i, np.arange(len(self.batch))) else self.tables.take(i)
            part = _Part(tables, self.levels.take(k), i, k * len(self.every) + first)
            if way.kind == "count":
                self._look_at_counts(part, way, mine, CELLS // stages)
            else:
                self._look_at(part, way)

    def _look_at_counts(self, part: "_Part", way: Way, quick: FloatArray, size: int) -> None:
        """The first count that may fit of every row, then the others as far as they may still be better."""
        ranges = count_range(part.tables, part.saved)
        beyond = way.count[:, None] - ranges.least
        count, case = np.nonzero((beyond >= 0) & (quick <= self._most[part.row]))
        order = np.argsort(beyond[count, case], kind="stable")
        count, case = count[order], case[order]
        firsts = int((beyond[count, case] == 0).sum())
        for at in (slice(0, firsts), *_portions(len(case), size, firsts)):
            w, c = count[at], case[at]
            left = quick[w, c] <= self._most[part.row[c]]
            w, c = w[left], c[left]
            if len(c):
                self._look_at(part.take(c, w), way.counting(way.count[w]), ranges.take(c))

    def _look_at(self, part: "_Part", way: Way, ranges: CountRange | None = None) -> None:
        low, high = _stages_bounded(part, way, ranges, self._most[part.row])
        np.minimum.at(self.lower, part.row, low)
        order = np.lexsort((part.turn, high, part.row))
        rows = part.row[order]
        best = order[np.concatenate([[True], rows[1:] != rows[:-1]])]
        rows, high, turn = part.row[best], high[best], part.turn[best]
        better = (high < self.upper[rows]) | ((high == self.upper[rows]) & (turn < self.turn[rows]))
        self.upper[rows[better]], self.turn[rows[better]] = high[better], turn[better]

    @property
    def _most(self) -> FloatArray:
        """Beyond what a row is known to reach, a case cannot be its best."""
        return np.minimum(self.limit, self.upper)

    def _quick(self, way: Way) -> FloatArray:
        """Quick bounds by count, level and row. (W, V, n)"""
        level = Level(self.levels.low[:, None], self.levels.high[:, None], self.levels.everything)
        tail = self.batch.shape.virtual * np.atleast_2d(quick_tail(self.batch, level))
        result: FloatArray = np.atleast_2d(quick_time(self.batch, way))[:, None] + tail
        return result


@dataclass(frozen=True, slots=True)
class _Part:
    """Some cases: their tables, levels, rows and turns."""

    tables: Tables
    level: Level
    row: IntArray
    turn: IntArray
    known: list[FloatArray] = field(default_factory=list)

    @property
    def saved(self) -> FloatArray:
        """Most memory that the levels free. (n, S, Q) [KiB]"""
        if not self.known:
            self.known.append(offload.saved(self.tables.batch, self.level))
        return self.known[0]

    def take(self, index: IntArray, later: IntArray) -> "_Part":
        """Some of the cases, so many turns later."""
        level, row, turn = self.level.take(index), self.row[index], self.turn[index] + later
        return _Part(self.tables.take(index), level, row, turn, [self.saved[index]])


def _portions(count: int, size: int, start: int = 0) -> Iterator[slice]:
    edges = [*range(start, count, max(size, 1)), count]
    return (slice(a, b) for a, b in itertools.pairwise(edges))


def _stages_bounded(
    part: _Part, way: Way, ranges: CountRange | None, most: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Lower bound and reached value of every case. (n,), (n,)"""
    tables, shape = part.tables, part.tables.batch.shape
    options = stage_times(tables, way, part.saved, ranges)
    times = np.minimum.reduce([option.time for _, option in options])
    longest = np.where(np.isfinite(times), windows(shape).length, 0).max(axis=2)
    holds: Any = (longest > 0).all(axis=1) & (longest.sum(axis=1) >= shape.num_layers)
    if not holds.any():
        return np.full(len(times), np.inf), np.full(len(times), np.inf)
    reached = np.minimum.reduce([option.reached for _, option in options])
    stages = Stages(times, reached, *offload.tails(tables, part.level))
    if shape.fixed:
        return fixed(tables.batch, stages, part.level)
    if shape.kinds == 1:
        return free(tables.batch, stages, part.level, most)
    return split(tables.batch, stages, part.level, most)
