"""The holding test: can the stages hold all layers within a limit on the step? A few divisions a stage, no tables.

The limit leaves the slowest stage a time T, the device leaves it a memory M. A stage that holds x_r layers in mode r,
each of time t_r and memory m_r, obeys for all prices y, z >= 0 of time and memory

    sum_r x_r <= (y T + z M) / min_r (y t_r + z m_r)

by weak duality. Prices of time alone, of memory alone, and those at which two modes cost the same are tried; the least
is what the stage holds at most. Where the stages together hold less than the model has, the row cannot win. Of several
layer kinds, the others count by what they cost at the prices chosen for the most frequent one.
"""

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np

from cost_models.arrays import FloatArray
from solver.bounds import offload
from solver.bounds.batch import Batch, is_free
from solver.bounds.free import counts_of
from solver.bounds.given import given_bound
from solver.bounds.offload import Level
from solver.bounds.quick import least_total, quick_tail
from solver.bounds.stage import FULL
from solver.bounds.ways import ANYHOW, Way, modes, ways, working
from solver.space import BoolArray

SLACK = 1e-9
"""Rounding of floats may not rule out a row."""

Price = FloatArray | float


def somehow(batch: Batch, limit: FloatArray) -> BoolArray:
    """Rows that could be within `limit` if every stage recomputed as it liked. (n,)"""
    return within(batch, limit, ANYHOW, offload.merged(batch.shape))


def may_win(batch: Batch, limit: FloatArray) -> BoolArray:
    """Rows that some way to recompute could bring within `limit`, as far as this test sees. (n,)"""
    possible = somehow(batch, limit)
    if is_free(batch.shape):
        return possible
    found, level = np.zeros(len(batch), dtype=bool), offload.merged(batch.shape)
    for way in ways(batch.shape):
        at = np.nonzero(possible & ~found)[0]
        if len(at):
            found[at] = within(batch.take(at), limit[at], way, level)
    return found


def within(batch: Batch, limit: FloatArray, way: Way, level: Level) -> BoolArray:
    """Whether the slowest stage, given what the limit leaves it, is at the mean at least and holds enough. (n,)

    With any of the way's counts.
    """
    if batch.shape.fixed:
        return given_bound(batch, way) <= limit
    counts = np.ravel(way.count)
    total = np.atleast_2d(least_total(batch, way.counting(counts[:, None])))
    left = limit - batch.shape.virtual * quick_tail(batch, level) - total
    count, row = np.nonzero(left >= batch.slope * np.ceil(total / batch.shape.stages))
    found = np.zeros(len(batch), dtype=bool)
    if len(row):
        holding = _Holding.of(batch.take(row), way.counting(counts[count]), level)
        found[row[holding.enough(left[count, row])]] = True
    return found


@dataclass(frozen=True, slots=True)
class _Holding:
    """How many layers each stage can hold under one way and level.

    Kinds and instants are few: as leading axes they leave long runs of numbers to each operation.
    """

    batch: Batch
    way: Way
    level: Level
    time: FloatArray  # (R, J, 1, n, P)
    memory: FloatArray  # (R, J, I, n, S)

    @classmethod
    def of(cls, batch: Batch, way: Way, level: Level) -> Self:
        """That of a batch."""
        time, memory = batch.time.layer.transpose(3, 2, 0, 1), batch.memory.layer.transpose(4, 3, 2, 0, 1)
        return cls(batch, way, level, np.ascontiguousarray(time)[:, :, None], np.ascontiguousarray(memory))

    @property
    def _count(self) -> FloatArray:
        """Layers of every stage that are fully recomputed whatever else. (n, 1)"""
        return np.reshape(self.way.count, (-1, 1)).astype(float)

    def enough(self, left: FloatArray) -> BoolArray:
        """Whether all layers fit when (v m - 1) times the slowest stage may take `left`. (n,)"""
        shape = self.batch.shape
        slope = self.batch.slope
        slowest = np.where(slope > 0, left / np.maximum(slope, 1), np.inf)
        most, value = self._most(slowest[:, None] - self.batch.time.stage, self._room())
        # The recomputed layers of a stage are the least that it holds; of several kinds they may count less.
        least = self._count if shape.kinds == 1 else 0.0
        most = np.where(most >= least - SLACK, most * (1 + SLACK) + SLACK, -np.inf)
        held = np.floor(most) if shape.kinds == 1 else most
        return np.asarray(held.sum(axis=1) >= counts_of(shape) @ value)

    def _room(self) -> FloatArray:
        """Memory left for layers, with the optimizer states of as many offloaded as the level allows. (I, n, S)"""
        memory = self.batch.memory
        freed = self.batch.shape.num_layers if self.level.everything else self.level.high
        saved = freed * memory.offload_saving.max(axis=-1)
        room = (memory.capacity + saved)[..., None] - memory.constant - working(self.batch, self.way)
        return np.ascontiguousarray(np.moveaxis(room, -1, 0))

    def _most(self, time: FloatArray, room: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Layers of the most frequent kind that each stage holds at most; what each kind counts. (n, S), (J, n)"""
        kinds = self.batch.shape.kinds
        most = np.full(time.shape, np.inf)
        value = np.ones((kinds, *time.shape))
        for y, z in self._prices():
            costs, extra = self._costs(y, z)
            major = costs[self._major]
            with np.errstate(divide="ignore", invalid="ignore"):
                bounds = np.where(major > 0, (_priced(y, z, time, room) + extra) / major, np.inf)
                relative = costs / major if kinds > 1 else costs
            for instant, bound in enumerate(bounds):
                # Of no use where the price is nothing and the time without end.
                better = bound < most
                most = np.where(better, bound, most)
                value = np.where(better, relative[:, instant], value) if kinds > 1 else value
        return most, value.min(axis=2)

    @property
    def _major(self) -> int:
        return int(counts_of(self.batch.shape).argmax())

    def _prices(self) -> Iterator[tuple[Price, Price]]:
        """Prices of time and memory: of one of them alone, then those at which two modes cost the same. (I, n, S)"""
        yield 1.0, 0.0
        yield 0.0, 1.0
        time, memory = self.time[:, self._major], self.memory[:, self._major]
        for less, more in itertools.combinations(modes(self.way), 2):
            yield np.maximum(memory[less] - memory[more], 0), np.maximum(time[more] - time[less], 0)

    def _costs(self, y: Price, z: Price) -> tuple[FloatArray, FloatArray | float]:
        """Cost of a layer by kind at these prices; what the stage's recomputed layers add. (J, I, n, S), (I, n, S)

        At a price of time alone one instant stands for all, and one stage for those of a pool.
        """

        def cost(mode: int) -> FloatArray:
            return _priced(y, z, self.time[mode], self.memory[mode])

        by_kind = functools.reduce(np.minimum, map(cost, modes(self.way)))
        if self.way.kind != "count":
            return by_kind, 0.0
        # The number of recomputed layers is given; its price makes them cost as much as the others.
        full = cost(FULL)
        given = by_kind[self._major] - full[self._major]
        return np.minimum(by_kind, full + given), self._count * given


def _priced(y: Price, z: Price, time: FloatArray, memory: FloatArray) -> FloatArray:
    """What time and memory cost together; of one alone, in no larger a shape than it has."""
    if isinstance(y, float) or isinstance(z, float):
        return time if y else memory
    priced: FloatArray = y * time + z * memory
    return priced
