"""Quick bounds of a way to recompute and a level of offload: sums over coefficients, without looking at memory."""

import numpy as np

from cost_models.arrays import FloatArray
from solver.bounds import offload
from solver.bounds.batch import Batch
from solver.bounds.free import counts_of
from solver.bounds.offload import Level
from solver.bounds.stage import FULL, NONE, price
from solver.bounds.ways import Way


def least_total(batch: Batch, way: Way) -> FloatArray:
    """Least sum of the stages' micro-batch times: every layer, and what the way recomputes at least. (n,) [ticks]"""
    every, constants = counts_of(batch.shape), batch.time.stage.sum(axis=1)
    if way.kind == "count":
        plain = constants + batch.time.layer[..., NONE].min(axis=1) @ every
        result: FloatArray = plain + way.count * batch.shape.stages * price(batch, NONE, FULL).min(axis=(1, 2))
        return result
    modes = batch.time.layer[..., way.mode] if way.kind == "mode" else batch.time.layer.min(axis=3)
    total: FloatArray = constants + modes.min(axis=1) @ every
    return total


def quick_time(batch: Batch, way: Way) -> FloatArray:
    """Micro-batches of a way, at least: the slowest stage takes at least the mean. (n,) [ticks]"""
    total = least_total(batch, way)
    slowest = np.ceil(total / batch.shape.stages)
    result: FloatArray = batch.slope * slowest + np.maximum(total, slowest)
    return result


def quick_tail(batch: Batch, level: Level) -> FloatArray:
    """Work after the last micro-batch of a level, at least, with what does not depend on the layout. (n,) [ticks]"""
    layers, time = batch.shape.num_layers, batch.time
    tail = time.stage_tail.max(axis=1) + np.minimum(time.layer_tail.min(axis=(1, 2)), 0) * layers
    if batch.shape.offloads:
        tail = tail + np.minimum(time.layer_offload.min(axis=(1, 2)), 0) * layers
        tail = np.maximum(tail, offload.least_offload_tail(batch, level))
    result: FloatArray = tail + time.fixed
    return result
