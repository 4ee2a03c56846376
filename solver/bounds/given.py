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
from solver.space import BoolArray

SLACK = 1e-9
"""Rounding of floats may not lift a bound, nor may that of memory times a steep price."""


def given_bound(batch: Batch, way: Way) -> FloatArray:
    """Lower bound on v times the step under a way to recompute; infinite where no layout fits. (n,) [ticks]"""
    stages = _Stages.of(batch, way)
    bound = np.full(len(batch), -np.inf)
    for price in stages.prices():
        bound = np.maximum(bound, stages.step(price).max(axis=(0, 2)))
    bound = bound - SLACK * np.abs(bound)
    return np.where(stages.fits, bound, np.inf)


@dataclass(frozen=True, slots=True)
class _Stages:
    """Given stages with the modes that a way allows.

    Kinds and instants are few: as leading axes they leave long runs of numbers to each operation.
    """

    batch: Batch
    counts: FloatArray  # (J, 1, 1, S)
    time: FloatArray  # (R, J, 1, n, P)
    memory: FloatArray  # (R, J, I, n, S)
    room: FloatArray  # (I, n, S)
    beside: FloatArray
    """What the step takes beside its slowest stage: the other stages, and the work after the last. (n, S)"""
    offload: FloatArray  # (J, 1, n, P)
    saving: FloatArray  # (J, 1, n, P)

    @classmethod
    def of(cls, batch: Batch, way: Way) -> "_Stages":
        """Those of a batch."""
        allowed, memory, time = list(modes(way)), batch.memory, batch.time
        counts = windows(batch.shape).counts[:, 0]
        plain = time.stage + (counts * time.layer[..., allowed].min(axis=-1)).sum(axis=-1)
        tail = time.stage_tail + (counts * time.layer_tail).sum(axis=-1) + time.fixed[:, None]
        room = memory.capacity[..., None] - memory.constant - working(batch, way)
        return cls(
            batch,
            counts.T[:, None, None],
            np.ascontiguousarray(time.layer[..., allowed].transpose(3, 2, 0, 1))[:, :, None],
            np.ascontiguousarray(memory.layer[..., allowed].transpose(4, 3, 2, 0, 1)),
            np.ascontiguousarray(np.moveaxis(room, -1, 0)),
            plain.sum(axis=1)[:, None] - plain + batch.shape.virtual * tail,
            np.moveaxis(time.layer_offload, -1, 0)[:, None],
            np.moveaxis(memory.offload_saving, -1, 0)[:, None],
        )

    @property
    def steps(self) -> FloatArray:
        """How often the slowest stage counts. (n, 1)"""
        return (self.batch.slope + 1)[:, None]

    @property
    def fits(self) -> BoolArray:
        """Whether the leanest layers fit, with all offloaded that may be. (n,)"""
        least = (self.counts * self.memory.min(axis=0)).sum(axis=0)
        if self.batch.shape.offloads:
            least = least - (self.counts * self.saving).sum(axis=0)
        return np.asarray((least <= self.room).all(axis=(0, 2)))

    def prices(self) -> Iterator[FloatArray]:
        """Prices of memory at which two ways to spend it on a layer cost the same. (I, n, S)"""
        yield np.zeros(self.room.shape)
        allowed, kinds = self.memory.shape[:2]
        for kind in range(kinds):
            for more in range(allowed):
                for less in range(more):
                    saved = self.memory[less, kind] - self.memory[more, kind]
                    yield _rate(self.time[more, kind] - self.time[less, kind], saved)
            if self.batch.shape.offloads:
                yield _rate(self.batch.shape.virtual * self.offload[kind], self.steps * self.saving[kind])

    def step(self, price: FloatArray) -> FloatArray:
        """The bound at this price, by the stage and instant that it looks at. (I, n, S)"""
        layers = functools.reduce(np.minimum, (t + price * m for t, m in zip(self.time, self.memory, strict=True)))
        room = self.room + SLACK * np.abs(self.room)
        stage = self.batch.time.stage + (self.counts * layers).sum(axis=0) - price * room
        result: FloatArray = self.steps * stage + self.beside + self._moving(price)
        return result

    def _moving(self, price: FloatArray) -> FloatArray | float:
        """What offloading adds at the least: memory that it frees counts at the price. (I, n, S)"""
        shape = self.batch.shape
        if not shape.offloads:
            return 0.0
        each = shape.virtual * self.offload - self.steps * (price * self.saving)
        if shape.offload == ALL_OR_NONE:
            whole: FloatArray = (self.counts * each).sum(axis=0)
            return whole
        fewest = 1.0 if shape.offload == SAME_COUNT or shape.stages == 1 else 0.0
        some: FloatArray = (self.counts * np.minimum(each, 0)).sum(axis=0)
        some = some + fewest * np.maximum(each.min(axis=0), 0)
        return some


def _rate(added: FloatArray, saved: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(saved > 0, np.maximum(added, 0) / saved, 0.0)
