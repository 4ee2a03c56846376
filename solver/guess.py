"""A guess of what a row takes: with equally many layers in every stage, recomputed as far as memory lacks.

Rows are looked at in this order, since a good plan early rules out most of the others. Nothing is proven by it.
"""

from dataclasses import dataclass

import numpy as np

from cost_models.arrays import FloatArray
from cost_models.schedule import BOTH, FIRST, LAST
from cost_models.table import MemoryTable
from solver.bounds.first import least_flight
from solver.layout import FREE, ONE_MODE
from solver.rounding import IntegerTime
from solver.rows import Rows
from solver.space import BoolArray

NONE, SELECTIVE, FULL = range(3)


def guess(rows: Rows, memory: MemoryTable, counts: FloatArray) -> FloatArray:
    """v times the step of the even layout of every row; infinite where it does not fit. (n,) [ticks]"""
    (time,), s = rows.time.values(), rows.strategy
    pp, v = np.asarray(s.pipeline_parallel), np.asarray(s.virtual_pipeline_stages)
    share = counts / pp[:, None]
    first, last = (_End.of(rows, memory, share, stage).extra(rows, time, share) for stage in (FIRST, LAST))
    # Stages that choose for themselves pass layers on until they take equally long.
    alike = rows.fixed | (rows.abilities["recompute"] != FREE)
    extra = np.where(alike, np.maximum(first, last), (first + last) / 2)
    moved = np.where(rows.offloads, np.maximum((time.layer_offload * share).sum(axis=1), 0), 0)
    steps = v * np.asarray(s.gradient_accumulation_steps)
    result: FloatArray = rows.lower + (steps - 1 + pp) * extra + v * moved
    return result


@dataclass(frozen=True, slots=True)
class _End:
    """The first or the last stage with its share of the layers."""

    room: FloatArray
    """For activations and working set. (n, I) [bytes]"""
    held: FloatArray
    """Activations of all layers in one mode. (n, I, R) [bytes]"""
    working: FloatArray
    """Working set of one mode. (n, I, R) [bytes]"""

    @classmethod
    def of(cls, rows: Rows, memory: MemoryTable, share: FloatArray, stage: int) -> "_End":
        """That end of every row."""
        pp, every = np.asarray(rows.strategy.pipeline_parallel), np.arange(len(rows))
        at = np.where(pp == 1, BOTH, stage)
        flight = least_flight(memory, rows.strategy, np.zeros_like(pp) if stage == FIRST else pp - 1)
        saved = np.where(rows.offloads, (memory.offload_saving * share).sum(axis=1), 0)
        states = memory.constant[every, at] + (memory.layer * share[..., None]).sum(axis=1)
        return cls(
            (memory.capacity + saved)[:, None] - states - flight * memory.stage_activation[every, at][:, None],
            flight[..., None] * (memory.activation * share[..., None]).sum(axis=1)[:, None],
            memory.working[every, at],
        )

    def extra(self, rows: Rows, time: IntegerTime, share: FloatArray) -> FloatArray:
        """Least time that recomputing takes in a micro-batch, so that the layers fit. (n,) [ticks]"""
        takes = (time.layer * share[..., None]).sum(axis=1)
        must = np.asarray(rows.strategy.recompute_interval) > 1
        best = np.where(self._fits(NONE) & ~must, 0.0, np.inf)
        for mode in (SELECTIVE, FULL):
            part = np.where(self._fits(mode), 1.0, np.inf)
            partly = ~must & (rows.abilities["recompute"] != ONE_MODE)
            part = np.where(partly, np.minimum(self._part(mode), part), part)
            possible = np.isfinite(part) & (~must | (mode == FULL))
            paid = np.where(possible, part, 0) * (takes[:, mode] - takes[:, NONE])
            best = np.where(possible, np.minimum(best, paid), best)
        return best

    def _fits(self, mode: int) -> BoolArray:
        """Whether all layers fit in one mode. (n,)"""
        return np.asarray((self.held[..., mode] + self.working[..., mode] <= self.room).all(axis=1))

    def _part(self, mode: int) -> FloatArray:
        """Part of the layers that fit if recomputed; infinite beyond all of them. (n,)"""
        lacking = self.held[..., NONE] + self.working.max(axis=-1) - self.room
        freed = self.held[..., NONE] - self.held[..., mode]
        with np.errstate(divide="ignore", invalid="ignore"):
            part = np.where(lacking > 0, np.where(freed > 0, lacking / freed, np.inf), 0).max(axis=1)
        return np.where(part <= 1, part, np.inf)
