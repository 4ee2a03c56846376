"""Free layers: how many layers each stage takes, bounded and by greed.

tau, the least slowest stage, is read off a table of stage times; the sum of the stages is bounded by prices per layer.
"""

import itertools
from typing import Any

import numpy as np

from cost_models.arrays import FloatArray, IntArray
from solver.bounds.batch import Batch, Shape, windows
from solver.bounds.stage import FULL, NONE, SELECTIVE


def by_length(batch: Batch, times: FloatArray) -> FloatArray:
    """Least time of each stage by its number of layers 0..L - S + 1, made nondecreasing. (n, S, L - S + 2)"""
    length = windows(batch.shape).length[0].astype(int)
    if batch.shape.kinds > 1:
        starts = np.searchsorted(length, np.arange(1, length[-1] + 1))
        times = np.minimum.reduceat(times, starts, axis=2)
    return np.minimum.accumulate(times[:, :, ::-1], axis=2)[:, :, ::-1]


def sum_bound(batch: Batch, times: FloatArray) -> FloatArray:
    """Lower bound on the sum of stage times: least reduced cost of each stage, plus the price of all layers."""
    counts = windows(batch.shape).counts
    total = counts_of(batch.shape)
    best = np.full(len(batch), -np.inf)
    for pool, mode in itertools.product(_a_stage_of_each_pool(batch), (NONE, SELECTIVE, FULL)):
        prices = batch.time.layer[:, pool, :, mode]
        reduced = times - (counts[None] * prices[:, None, None, :]).sum(axis=-1)
        best = np.maximum(best, reduced.min(axis=2).sum(axis=1) + prices @ total)
    return best


def _a_stage_of_each_pool(batch: Batch) -> list[int]:
    """Where the prices of each pool's layers are found."""
    starts = itertools.accumulate((stages for stages, _ in batch.nodes[:-1]), initial=0)
    return list(starts) if batch.time.layer.shape[1] > 1 else [0]


def counts_of(shape: Shape) -> FloatArray:
    """Layers of the model by kind."""
    return np.bincount(np.array(shape.order), minlength=shape.kinds).astype(float)


def slowest_stage(table: FloatArray, layers: int) -> FloatArray:
    """tau: the least time at which the stages together can hold all layers, each at least one. (n,)

    A stage holds as many layers as it has entries at or below tau, so tau is the L-th smallest entry.
    """
    flat = table.reshape(len(table), -1)
    if flat.shape[1] < layers:
        return np.full(len(table), np.inf)
    tau: FloatArray = np.maximum(np.partition(flat, layers - 1, axis=1)[:, layers - 1], table[:, :, 0].max(axis=1))
    return tau


def greedy_layers(times: FloatArray, tau: FloatArray, layers: int) -> IntArray:
    """Layers by stage: as many as fit below tau, then taken back from the slowest stages; 0 where that fails. (n, S)"""
    reachable: Any = np.isfinite(tau)[:, None, None]
    below = (times <= tau[:, None, None]) & reachable
    held = np.where(below.any(axis=2), below.shape[2] - np.argmax(below[:, :, ::-1], axis=2), 0)
    rows = np.arange(len(times))
    for _ in range(int(np.clip(held.sum(axis=1).max(initial=0) - layers, 0, layers * held.shape[1]))):
        over = held.sum(axis=1) > layers
        if not over.any():
            break
        current = np.take_along_axis(times, np.maximum(held - 1, 0)[:, :, None], axis=2)[:, :, 0]
        current = np.where(held > 1, current, -np.inf)
        slowest = current.argmax(axis=1)
        held[rows[over], slowest[over]] -= 1
    good = (held >= 1).all(axis=1) & (held.sum(axis=1) == layers)
    result: IntArray = np.where(good[:, None], held, 0)
    return result
