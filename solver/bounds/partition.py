"""Free layers of several kinds: the exact split of the order into stages, by dynamic programming over positions.

After s + 1 stages the position is s + 1 + y with 0 <= y <= L - S, as every stage holds at least one layer. Split
values are maxima (the slowest stage) or sums (the micro-batch's passage) of what each stage pays for its window.
"""

from typing import Any

import numpy as np

from cost_models.arrays import FloatArray, IntArray
from solver.bounds.batch import Batch, windows


def _between(batch: Batch, table: FloatArray, s: int) -> FloatArray:
    """What stage s pays from each position to each: (n, x, y); infinite backwards. `table` is (n, S, Q)."""
    slack = batch.shape.num_layers - batch.shape.stages
    places = windows(batch.shape).places[s : s + slack + 1, s + 1 : s + slack + 2]
    padded = np.concatenate([table[:, s], np.full((len(table), 1), np.inf)], axis=1)
    result: FloatArray = padded[:, places]
    return result


def least_maximum(batch: Batch, table: FloatArray) -> FloatArray:
    """Least over the splits of the largest entry of any stage. (n,)"""
    best: FloatArray = _between(batch, table, 0)[:, 0]
    for s in range(1, batch.shape.stages):
        best = np.maximum(best[:, :, None], _between(batch, table, s)).min(axis=1)
    return best[:, -1]


def least_sum(batch: Batch, table: FloatArray) -> tuple[FloatArray, IntArray]:
    """Least over the splits of the sum over the stages, and the layers of each stage there. (n,), (n, S)"""
    best: FloatArray = _between(batch, table, 0)[:, 0]
    came: list[Any] = []
    for s in range(1, batch.shape.stages):
        reached = best[:, :, None] + _between(batch, table, s)
        came.append(reached.argmin(axis=1))
        best = np.take_along_axis(reached, came[-1][:, None, :], axis=1)[:, 0]
    n, slack = len(table), batch.shape.num_layers - batch.shape.stages
    at, layers = np.full(n, slack), np.ones((n, batch.shape.stages), dtype=np.int64)
    for s in range(batch.shape.stages - 1, 0, -1):
        before = came[s - 1][np.arange(n), at]
        layers[:, s] = at - before + 1
        at = before
    layers[:, 0] = at + 1
    return best[:, -1], layers


def chosen_windows(batch: Batch, layers: IntArray) -> IntArray:
    """The window of each stage of a split. (n, S)"""
    ends = np.cumsum(layers, axis=1)
    result: IntArray = windows(batch.shape).places[ends - layers, ends]
    return result
