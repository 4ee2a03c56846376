r"""The holding test of rows whose layers are given: what one stage adds to the step at the least, at prices of memory.

Let a stage hold c_j layers of kind j, M the memory left for them, t_jr and m_jr what one takes in mode r, g_j its work
after the last micro-batch, o_j what offloading it adds to that, s_j what it frees. For every price of memory
:math:`\lambda \ge 0` at any instant, weak duality bounds v times the step by

.. math:: n\,\Big(t_0 + \sum_j c_j \min_r (t_{jr} + \lambda m_{jr}) - \lambda M\Big) + \sum_{s' \ne s} T_{s'}
          + v\,\Big(g_0 + \sum_j c_j g_j + c\Big) + \min_w \sum_j w_j\,(v\,o_j - n \lambda s_j)

where the stage counts n = v m times, as the slowest, T is what other stages take without a look at memory, and
:math:`w_j \le c_j` layers are offloaded. The prices at which two modes, or a mode and offload, cost the same are tried.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cost_models.arrays import FloatArray
from solver.bounds.batch import Batch, windows
from solver.bounds.ways import Way, modes, working
from solver.layout import ALL_OR_NONE, SAME_COUNT

SLACK = 1e-9
"""Rounding of floats may not lift a bound, nor may that of memory times a steep price."""


def given_bound(batch: Batch, way: Way) -> FloatArray:
    """Lower bound on v times the step under a way to recompute; infinite where no layout fits. (n,) [ticks]"""
    stages = _Stages.of(batch, way)
    bound = np.full(len(batch), -np.inf)
    for price in stages.prices():
        bound = np.maximum(bound, stages.step(price).max(axis=(1, 2)))
    bound = bound - SLACK * np.abs(bound)
    return np.where(stages.fits, bound, np.inf)


@dataclass(frozen=True, slots=True)
class _Stages:
    """Given stages with the modes that a way allows."""

    batch: Batch
    counts: FloatArray  # (S, J)
    time: FloatArray  # (n, P, 1, J, R)
    memory: FloatArray  # (n, S, I, J, R)
    room: FloatArray  # (n, S, I)

    @classmethod
    def of(cls, batch: Batch, way: Way) -> "_Stages":
        """Those of a batch."""
        allowed, memory = list(modes(way)), batch.memory
        return cls(
            batch,
            windows(batch.shape).counts[:, 0],
            batch.time.layer[:, :, None][..., allowed],
            memory.layer[..., allowed],
            memory.capacity[..., None] - memory.constant - working(batch, way),
        )

    @property
    def steps(self) -> FloatArray:
        """How often the slowest stage counts. (n, 1, 1)"""
        return (self.batch.slope + 1)[:, None, None]

    @property
    def fits(self) -> FloatArray:
        """Whether the leanest layers fit, with all offloaded that may be. (n,) bool"""
        least = (self.counts[:, None] * self.memory.min(axis=-1)).sum(axis=-1)
        if self.batch.shape.offloads:
            least = least - (self.counts * self.batch.memory.offload_saving).sum(axis=-1)[..., None]
        return np.asarray((least <= self.room).all(axis=(1, 2)))

    def prices(self) -> Iterator[FloatArray]:
        """Prices of memory at which two ways to spend it on a layer cost the same. (n, S, I)"""
        yield np.zeros(self.room.shape)
        kinds, allowed = self.memory.shape[-2:]
        for kind in range(kinds):
            for more in range(allowed):
                for less in range(more):
                    saved = self.memory[..., kind, less] - self.memory[..., kind, more]
                    added = self.time[..., kind, more] - self.time[..., kind, less]
                    yield _rate(added, saved)
            if self.batch.shape.offloads:
                added = self.batch.shape.virtual * self.batch.time.layer_offload[:, :, None, kind]
                saved = self.steps * self.batch.memory.offload_saving[:, :, None, kind]
                yield np.broadcast_to(_rate(added, saved), self.room.shape)

    def step(self, price: FloatArray) -> FloatArray:
        """The bound at this price, by the stage and instant that it looks at. (n, S, I)"""
        batch, v = self.batch, self.batch.shape.virtual
        each = price[..., None]
        priced = (self.time[..., r] + each * self.memory[..., r] for r in range(self.memory.shape[-1]))
        layers = functools.reduce(np.minimum, priced)
        room = self.room + SLACK * np.abs(self.room)
        stage = batch.time.stage[:, :, None] + (self.counts[:, None] * layers).sum(axis=-1) - price * room
        plain = batch.time.stage + (self.counts * self.time[:, :, 0].min(axis=-1)).sum(axis=-1)
        tail = batch.time.stage_tail + (self.counts * batch.time.layer_tail).sum(axis=-1) + batch.time.fixed[:, None]
        others = plain.sum(axis=1)[:, None] - plain
        result: FloatArray = self.steps * stage + (others + v * tail)[..., None] + self._moving(price)
        return result

    def _moving(self, price: FloatArray) -> FloatArray | float:
        """What offloading adds at the least: memory that it frees counts at the price. (n, S, I)"""
        shape, time, memory = self.batch.shape, self.batch.time, self.batch.memory
        if not shape.offloads:
            return 0.0
        each = shape.virtual * time.layer_offload[:, :, None] - self.steps[..., None] * (
            price[..., None] * memory.offload_saving[:, :, None]
        )
        if shape.offload == ALL_OR_NONE:
            whole: FloatArray = (self.counts[:, None] * each).sum(axis=-1)
            return whole
        fewest = 1.0 if shape.offload == SAME_COUNT or shape.stages == 1 else 0.0
        some: FloatArray = (self.counts[:, None] * np.minimum(each, 0)).sum(axis=-1)
        some = some + fewest * np.maximum(each.min(axis=-1), 0)
        return some


def _rate(added: FloatArray, saved: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(saved > 0, np.maximum(added, 0) / saved, 0.0)
