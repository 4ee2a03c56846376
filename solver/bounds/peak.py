"""Lower bound on the peak memory of a row, for the objective memory and for necessary tests in integers."""

import numpy as np

from cost_models.arrays import FloatArray
from solver.bounds import stage
from solver.bounds.batch import Batch, windows
from solver.bounds.free import slowest_stage
from solver.bounds.offload import deepest, saved


def peak_bound(batch: Batch) -> FloatArray:
    """Least peak over all layouts: every layer in its leanest mode, everything offloaded that may be. (n,) [KiB]"""
    freed = saved(batch, deepest(batch.shape))
    modes = (2,) if batch.shape.needs_full and batch.shape.recompute == 0 else (0, 1, 2)
    lean = np.minimum.reduce([stage.load(batch, mode) for mode in modes])
    work = batch.memory.working.min(axis=-1)[..., None]
    peak = (lean + work).max(axis=2) - freed
    peak = np.where(windows(batch.shape).valid[None], peak, np.inf)
    if batch.shape.fixed:
        result: FloatArray = peak.max(axis=(1, 2))
        return result
    length = windows(batch.shape).length[0].astype(int)
    if batch.shape.kinds > 1:
        peak = np.minimum.reduceat(peak, np.searchsorted(length, np.arange(1, length[-1] + 1)), axis=2)
    table = np.minimum.accumulate(peak[:, :, ::-1], axis=2)[:, :, ::-1]
    return slowest_stage(table, batch.shape.num_layers)
