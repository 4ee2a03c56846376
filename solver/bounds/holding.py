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
        holding = _Holding(batch.take(row), way.counting(counts[count]), level)
        found[row[holding.enough(left[count, row])]] = True
    return found


@dataclass(frozen=True, slots=True)
class _Holding:
    """How many layers each stage can hold under one way and level."""

    batch: Batch
    way: Way
    level: Level

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
        return np.asarray(held.sum(axis=1) >= value @ counts_of(shape))

    def _room(self) -> FloatArray:
        """Memory left for layers, with the optimizer states of as many offloaded as the level allows. (n, S, I)"""
        memory = self.batch.memory
        freed = self.batch.shape.num_layers if self.level.everything else self.level.high
        saved = freed * memory.offload_saving.max(axis=-1)
        room: FloatArray = (memory.capacity + saved)[..., None] - memory.constant - working(self.batch, self.way)
        return room

    def _most(self, time: FloatArray, room: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Layers of the most frequent kind that each stage holds at most; what each kind counts. (n, S), (n, J)"""
        kinds = self.batch.shape.kinds
        most = np.full(time.shape, np.inf)
        value = np.ones((*time.shape, kinds))
        for y, z in self._prices():
            costs, extra = self._costs(y, z)
            with np.errstate(divide="ignore", invalid="ignore"):
                bound = (y * time[:, :, None] + z * room + extra) / costs[..., self._major]
            bound = np.where(costs[..., self._major] > 0, bound, np.inf)
            at = bound.argmin(axis=2)[:, :, None]
            least = np.take_along_axis(bound, at, axis=2)[:, :, 0]
            better = least < most
            most = np.where(better, least, most)
            if kinds > 1:
                chosen = np.take_along_axis(costs, at[..., None], axis=2)[:, :, 0]
                with np.errstate(divide="ignore", invalid="ignore"):
                    relative = chosen / chosen[..., self._major, None]
                value = np.where(better[..., None], relative, value)
        return most, value.min(axis=1)

    @property
    def _major(self) -> int:
        return int(counts_of(self.batch.shape).argmax())

    def _prices(self) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Prices of time and memory. (n, S, I)"""
        memory = self.batch.memory.layer[..., self._major, :]
        zero, one = np.zeros(memory.shape[:-1]), np.ones(memory.shape[:-1])
        yield one, zero
        yield zero, one
        time = self.batch.time.layer[:, :, self._major]
        for less, more in itertools.combinations(modes(self.way), 2):
            saved = memory[..., less] - memory[..., more]
            added = np.broadcast_to((time[..., more] - time[..., less])[..., None], saved.shape)
            yield np.maximum(saved, 0), np.maximum(added, 0)

    def _costs(self, y: FloatArray, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Cost of a layer by kind at these prices; what the stage's recomputed layers add. (n, S, I, J), (n, S, I)"""
        time, memory = self.batch.time.layer[:, :, None], self.batch.memory.layer

        def cost(mode: int) -> FloatArray:
            priced: FloatArray = y[..., None] * time[..., mode] + z[..., None] * memory[..., mode]
            return priced

        by_kind = functools.reduce(np.minimum, map(cost, modes(self.way)))
        if self.way.kind != "count":
            return by_kind, np.zeros(y.shape)
        # The number of recomputed layers is given; its price makes them cost as much as the others.
        full = cost(FULL)
        given = by_kind[..., self._major] - full[..., self._major]
        return np.minimum(by_kind, full + given[..., None]), self._count[..., None] * given
