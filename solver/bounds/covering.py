"""Three modes in one stage: what freeing the lacking memory costs at least, as a continuous knapsack of each instant.

Layers of a kind free memory at the rates of the convex hull of (memory freed, time added) over their modes; the
cheapest rates are used first, each no further than the window has layers of that kind.
"""

import numpy as np

from cost_models.arrays import FloatArray
from solver.bounds import stage
from solver.bounds.batch import windows
from solver.bounds.stage import FULL, NONE, SELECTIVE, StageTime, Tables

SLACK = 1 - 1e-12
"""Rounding of floats may not lift a bound."""


def _segments(tables: Tables) -> tuple[FloatArray, FloatArray]:
    """Rate and memory freed per layer of the hull's two segments of every kind. (n, S, I, 2 J)"""
    layer, batch = tables.batch.memory.layer, tables.batch
    freed = [np.maximum(layer[..., NONE] - layer[..., mode], 0) for mode in (SELECTIVE, FULL)]
    added = [np.maximum(stage.prices(batch, NONE, mode), 0)[:, :, None, :] for mode in (SELECTIVE, FULL)]
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = [np.where(d > 0, p / d, np.inf) for p, d in zip(added, freed, strict=True)]
        more = np.maximum(freed[1] - freed[0], 0)
        further = np.where(more > 0, np.maximum(added[1] - added[0], 0) / more, np.inf)
    # Partial recomputation is on the hull only where its rate is the lower one.
    partly = rates[0] < rates[1]
    rate = np.concatenate([np.where(partly, rates[0], rates[1]), np.where(partly, further, np.inf)], axis=-1)
    size = np.concatenate([np.where(partly, freed[0], freed[1]), np.where(partly, more, 0.0)], axis=-1)
    return rate, size


def _covering(tables: Tables, lacking: FloatArray) -> FloatArray:
    """Least time that frees what is lacking at the worst instant; infinite where nothing frees it. (n, S, Q)"""
    rate, size = _segments(tables)
    counts = np.concatenate([windows(tables.batch.shape).counts] * 2, axis=-1)
    left, paid = np.maximum(lacking, 0), np.zeros(lacking.shape)
    order = np.argsort(rate, axis=-1, kind="stable")
    stages = np.arange(counts.shape[0])[None, :, None]
    for k in range(order.shape[-1]):
        at = order[..., k]
        cheapest = np.take_along_axis(rate, at[..., None], axis=-1)
        used = np.minimum(left, np.take_along_axis(size, at[..., None], axis=-1) * counts[stages, :, at])
        paid += np.where(used > 0, np.where(np.isfinite(cheapest), cheapest, 0.0) * used, 0.0)
        left = left - used
    enough = (left <= np.maximum(lacking, 0) * (1 - SLACK)).all(axis=2)
    result: FloatArray = np.where(enough, paid.max(axis=2), np.inf)
    return result


def triple(tables: Tables, saved: FloatArray) -> StageTime:
    """All three modes in one stage, none of them reached by a layout of this bound."""
    batch = tables.batch
    room = stage.room(batch, saved)
    covering = _covering(tables, stage.need(tables, NONE, FULL) - room[:, :, None, :])
    at = windows(batch.shape)
    fits = np.isfinite(covering) & (at.length >= 3) & at.valid[None]
    partly, fully = stage.price(batch, NONE, SELECTIVE), stage.price(batch, NONE, FULL)
    cheapest = np.minimum(np.minimum(partly, fully), 0) * at.length
    extra = np.where(cheapest < 0, cheapest, np.maximum(partly + fully, np.floor(covering * SLACK)))
    time = np.where(fits, stage.run_time(tables, NONE) + np.where(fits, extra, 0), np.inf)
    return StageTime(time, np.full(fits.shape, np.inf), np.zeros(fits.shape))
