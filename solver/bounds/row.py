"""The bound of a row: over every way to recompute and offload, the least step time, and the layout that reaches it.

Given layers, the stages are independent but for the maxima. With free layers, tau is the least slowest stage and the
sum is bounded by prices per layer (a Lagrangian bound) or, with several layer kinds, split exactly.
"""

from dataclasses import replace

import numpy as np

from cost_models.arrays import FloatArray
from solver.bounds import offload
from solver.bounds.batch import Batch, windows
from solver.bounds.cases import Bounds, bounded
from solver.bounds.offload import Level
from solver.bounds.partition import chosen_windows
from solver.bounds.quick import least_total, quick_tail
from solver.bounds.stage import FULL, NONE, SELECTIVE, Tables
from solver.bounds.step import held_layers
from solver.bounds.ways import ANYHOW, Way, stage_times
from solver.layout import Layout, StageLayout
from solver.rounding import above

SLACK = 1e-9
"""Rounding of floats may not shorten a stage."""


def row_bounds(batch: Batch, limit: FloatArray | None = None, *, fine: bool = False) -> Bounds:
    """Bounds of every row of a batch. Ways that cannot reach `limit` are bounded no further than that. (n,) [ticks]

    Where there is a limit, all levels of offload are bounded as one first, and told apart where that may be within it.
    `fine` bounds tell every number of offloaded layers apart.
    """
    n, levels = len(batch), offload.levels(batch.shape, fine=fine)
    most = batch.max_time if limit is None else np.minimum(limit, batch.max_time)
    if limit is not None:
        batch = shortened(batch, most)
    lower, upper = np.full(n, -np.inf), np.full(n, np.inf)
    chosen: list[tuple[Way, Level] | None] = [None] * n
    if len(levels) > 1 and limit is not None:
        lower = bounded(batch, most, offload.merged(batch.shape).alone).lower
    at = np.nonzero(lower <= most)[0]
    if len(at):
        part = bounded(batch if len(at) == n else batch.take(at), most[at], levels)
        lower[at], upper[at] = part.lower, part.upper
        for place, way in zip(at, part.way, strict=True):
            chosen[place] = way
    if batch.shape.longest is not None:
        lower = np.minimum(lower, above(most))  # longer stages were not looked at: with them a row is above its limit
    # What a rank keeps on the host whatever is offloaded may be too much already.
    hosted = offload.host_fits(batch, np.zeros((n, batch.shape.stages)))
    lower = np.where((lower > batch.max_time) | ~hosted, np.inf, lower)
    return Bounds(lower=lower, upper=np.where(upper > batch.max_time, np.inf, upper), way=tuple(chosen))


def shortened(batch: Batch, limit: FloatArray) -> Batch:
    """The batch with no stage longer than the limits on its step allow; `limit` of every row. (n,) [ticks]"""
    shape, slope = batch.shape, batch.slope
    if shape.fixed:
        return batch
    tail = shape.virtual * quick_tail(batch, offload.merged(shape))
    with np.errstate(divide="ignore", invalid="ignore"):
        slowest = np.where(slope > 0, (limit - tail - least_total(batch, ANYHOW)) / slope, np.inf)
        held = (slowest[:, None] - batch.time.stage) / batch.time.layer.min(axis=(2, 3))
    most = float(np.max(np.where(np.isnan(held), np.inf, held), initial=1.0))
    if most >= shape.num_layers - shape.stages + 1:
        return batch
    return replace(batch, shape=replace(shape, longest=max(1, int(most * (1 + SLACK)))))


def layout_of(batch: Batch, way: Way, level: Level) -> Layout:
    """The layout behind the upper bound of a batch of one row."""
    options = stage_times(Tables(batch), way, offload.saved(batch, level))
    stacked = np.stack([option.reached[0] for _, option in options])
    at = windows(batch.shape)
    if batch.shape.fixed:
        places = np.zeros(batch.shape.stages, dtype=int)
    else:
        _, tail = offload.tails(Tables(batch), level)
        places = chosen_windows(batch, held_layers(batch, stacked.min(axis=0)[None], tail))[0]
    stages = []
    for s, place in enumerate(places):
        pattern, option = options[int(stacked[:, s, place].argmin())]
        stages.append(_stage_layout(pattern, int(at.length[s, place]), int(option.recomputed[0, s, place]), level))
    return tuple(stages)


def _stage_layout(pattern: tuple[int, ...], layers: int, count: int, level: Level) -> StageLayout:
    offloaded = layers if level.everything else min(int(level.high), layers)
    if len(pattern) == 1:
        count, pattern = layers, (NONE, *pattern)
    less, more = pattern
    if more == NONE:
        return StageLayout(layers=layers, offloaded=offloaded)
    full = count if more == FULL else 0
    selective = count if more == SELECTIVE else layers - full if less == SELECTIVE else 0
    return StageLayout(layers=layers, full=full, selective=selective, offloaded=offloaded)
