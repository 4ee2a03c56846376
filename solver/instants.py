"""Which memory instants can bind: those that no other one exceeds in every stage of every row, whatever the layout."""

from collections.abc import Sequence

import numpy as np

from cost_models.arrays import FloatArray, IntArray
from cost_models.table import MemoryTable
from solver.rounding import StageMemory, stage_memory
from solver.space import BoolArray


def at_ends(memory: MemoryTable, *, stages: int, virtual: IntArray, micro_batches: IntArray) -> StageMemory:
    """Memory of the first and last stage, and of the first and last one between them.

    A stage's memory is linear in its micro-batches in flight, which fall from stage to stage: what holds for these
    stages holds for all.
    """
    ends = np.unique([0, min(1, stages - 1), max(stages - 2, 0), stages - 1])
    return stage_memory(memory, stages=stages, virtual=virtual, micro_batches=micro_batches, at=ends)


def binding_instants(ends: Sequence[StageMemory]) -> IntArray:
    """Instants that can bind in some pool, from the ends of its pipeline."""
    below = np.logical_and.reduce([_below(memory) for memory in ends])
    first = np.arange(len(below))[:, None] > np.arange(len(below))
    # Of two that are always equal the first is kept.
    beaten = below & (first | ~below.T)
    np.fill_diagonal(beaten, False)
    return np.nonzero(~beaten.any(axis=1))[0]


def _below(memory: StageMemory) -> BoolArray:
    """Whether an instant (first axis) never exceeds another (second axis). (I, I)"""
    working, selector = memory.working, memory.selector
    costs = _never(memory.constant, memory.constant) & _never(memory.layer, memory.layer)
    # The working set is of the least or the most recomputing mode of a stage, whichever the instant selects.
    alike = _never(working, working) & (selector[:, None] == selector[None, :])
    always = _never(working.max(axis=-1), working.min(axis=-1))
    result: BoolArray = costs & (alike | always)
    return result


def _never(low: FloatArray, high: FloatArray) -> BoolArray:
    """Whether one instant's values are never above another's: (n, S, I, ...) twice -> (I, I)."""
    axes = tuple(axis for axis in range(low.ndim) if axis != 2)
    return np.stack([(low[:, :, i, None] <= high).all(axis=axes) for i in range(low.shape[2])])
