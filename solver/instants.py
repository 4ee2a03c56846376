"""Which memory instants can bind: those that no other one exceeds in every stage of every row, whatever the layout."""

from collections.abc import Sequence

import numpy as np

from cost_models.arrays import IntArray
from cost_models.table import MemoryTable
from solver.rounding import StageMemory, stage_memory

SAMPLE = 8
"""Rows that are compared before all are."""


def at_ends(
    memory: MemoryTable, *, stages: int, virtual: IntArray, micro_batches: IntArray, layers: int
) -> StageMemory:
    """Memory of the first and last stage, and of the first and last one between them.

    A stage's memory is linear in its micro-batches in flight, which fall from stage to stage but for the ends: what
    holds for these stages holds for all.
    """
    ends = np.unique([0, min(1, stages - 1), max(stages - 2, 0), stages - 1])
    return stage_memory(memory, stages=stages, virtual=virtual, micro_batches=micro_batches, layers=layers, at=ends)


def binding_instants(ends: Sequence[StageMemory]) -> IntArray:
    """Instants that can bind in some pool, from the ends of its pipeline.

    Never to exceed is transitive, so an instant that is dropped need not be compared again. Of two that are always
    equal the first is kept.
    """
    kept = dict.fromkeys(range(len(ends[0].selector)))
    for low in list(kept):
        for high in kept:
            if high != low and _never_above(ends, low, high) and (high < low or not _never_above(ends, high, low)):
                del kept[low]
                break
    return np.array(list(kept), dtype=np.int64)


def _never_above(ends: Sequence[StageMemory], low: int, high: int) -> bool:
    """Whether an instant never exceeds another in any pool; most pairs are told apart by a few rows."""
    few = slice(None, None, len(ends[0].constant) // SAMPLE + 1)
    return all(_below(memory, rows, low, high) for rows in (few, slice(None)) for memory in ends)


def _below(memory: StageMemory, rows: slice, low: int, high: int) -> bool:
    """Whether one instant's memory is at most another's in these rows."""
    for values in (memory.constant[rows], memory.layer[rows]):
        if (values[:, :, low] > values[:, :, high]).any():
            return False
    least, most = memory.working[rows, :, low], memory.working[rows, :, high]
    # The working set is of the least or the most recomputing mode of a stage, whichever the instant selects.
    alike = memory.selector[low] == memory.selector[high]
    return bool(alike and (least <= most).all()) or bool((least.max(axis=-1) <= most.min(axis=-1)).all())
