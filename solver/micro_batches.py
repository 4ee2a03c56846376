"""Larger micro-batches, for questions of memory alone: most of them need no prices of their own.

Of one batch size q, rows that share all else but the micro-batch b have min(q, b k) sequences in flight where k
micro-batches may be: least for the least b. At the instants of `GROWING` nothing that a rank holds shrinks as b grows;
in the middle of a backward it may, as what forward saved makes room for gradients. So the rows of the least b come
first, and the others only where the least one does not fail at an instant of `GROWING`. A single micro-batch needs
no gradients beside its own: such rows count as least.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cost_models.arrays import IntArray
from cost_models.memory.instants import END_OF_BACKWARD, FIRST_STEP, LOAD, LOSS, SAVE, STEP
from solver.bounds.first import least_memory
from solver.caps import Caps
from solver.problem import Problem
from solver.rows import MEMORY_CHUNK, Prices, host_need, layer_counts, no_time, priced_rows
from solver.space import STRUCTURE, BackendSpace, BoolArray, every_topology, rows_of

GROWING = np.array([LOAD, LOSS, END_OF_BACKWARD, STEP, FIRST_STEP, SAVE])
"""Instants at which no micro-batch needs less than a smaller one."""


def least_first(problem: Problem, spaces: Sequence[BackendSpace]) -> tuple[BackendSpace, ...]:
    """The rows without a legal twin of a smaller micro-batch."""
    batch = problem.job.training.batch_range
    if batch.min != batch.max:
        return tuple(spaces)
    return tuple(replace(space, legal=space.legal & ~_twinned(space)) for space in spaces)


def others(
    problem: Problem, prices: Prices, spaces: Sequence[BackendSpace], least: Sequence[BackendSpace], caps: Caps
) -> tuple[BackendSpace, ...]:
    """The rows that are left out of `least` and may fit all the same: whose twin does not fail where it would, too."""
    hoped = hopeful(problem, prices, least, caps)
    found = []
    for space, first, may in zip(spaces, least, hoped, strict=True):
        legal = space.legal & ~first.legal
        found.append(replace(space, legal=legal & may[_smallest(space)] if space.size else legal))
    return tuple(found)


def hopeful(problem: Problem, prices: Prices, spaces: Sequence[BackendSpace], caps: Caps) -> tuple[BoolArray, ...]:
    """Rows that may fit at the instants that tell."""
    masks = tuple(np.zeros_like(space.legal) for space in spaces)
    every = rows_of(spaces, *every_topology(spaces))
    for start in range(0, len(every[0]), MEMORY_CHUNK):
        space, topology, feature = (column[start : start + MEMORY_CHUNK] for column in every)
        may = _may_fit(problem, replace(prices, time=no_time), spaces, (space, topology, feature), caps)
        for index, mask in enumerate(masks):
            at = may & (space == index)
            mask[topology[at], feature[at]] = True
    return masks


def _may_fit(
    problem: Problem,
    prices: Prices,
    spaces: Sequence[BackendSpace],
    at: tuple[IntArray, IntArray, IntArray],
    caps: Caps,
) -> BoolArray:
    rows = priced_rows(problem, prices, spaces, *at)
    memory = prices.memory(problem.job, rows.strategy, problem.calibration, problem.oom_risk)
    memory = caps.bounded(memory).at_instants(GROWING)
    need = least_memory(memory, rows.strategy, layer_counts(problem.job), rows.fixed, rows.offloads)
    host = host_need(problem, rows, memory, problem.job.pool.gpus_per_node)
    may: BoolArray = (need <= memory.capacity) & (host <= memory.host_capacity)
    return may


def _smallest(space: BackendSpace) -> IntArray:
    """For every topology that of the smallest micro-batch; those that share all else are neighbours, ascending."""
    t = space.topologies
    same = np.logical_and.reduce([t[key][1:] == t[key][:-1] for key in STRUCTURE])
    places = np.arange(space.size)
    result: IntArray = np.maximum.accumulate(np.where(np.concatenate([[False], same]), 0, places))
    return result


def _twinned(space: BackendSpace) -> BoolArray:
    """Rows of several micro-batches whose twin with the smallest is legal."""
    if not space.size:
        return space.legal
    smallest = _smallest(space)
    larger = (space.topologies["gradient_accumulation_steps"] > 1) & (smallest != np.arange(space.size))
    twinned: BoolArray = larger[:, None] & space.legal[smallest]
    return twinned
