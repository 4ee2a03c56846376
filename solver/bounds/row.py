"""The bound of a row: over every way to recompute and offload, the least step time, and the layout that reaches it.

Given layers, the stages are independent but for the maxima. With free layers, tau is the least slowest stage and the
sum is bounded by prices per layer (a Lagrangian bound) or, with several layer kinds, split exactly.
"""

from dataclasses import dataclass

import numpy as np

from cost_models.arrays import FloatArray
from solver.bounds import offload
from solver.bounds.batch import Batch, windows
from solver.bounds.offload import Level
from solver.bounds.partition import chosen_windows
from solver.bounds.quick import quick_tail, quick_time
from solver.bounds.stage import FULL, NONE, SELECTIVE, CountRange, Tables, count_range
from solver.bounds.step import Stages, fixed, free, held_layers, split
from solver.bounds.ways import Way, stage_times, ways
from solver.layout import Layout, StageLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Bounds on v times the step, in ticks."""

    lower: FloatArray
    upper: FloatArray
    """Value of a feasible layout, where one was found; infinite otherwise."""
    way: tuple[tuple[Way, Level] | None, ...]
    """Of the layout behind `upper`."""


def row_bounds(batch: Batch, limit: FloatArray | None = None, *, fine: bool = False) -> Bounds:
    """Bounds of every row of a batch. Ways that cannot reach `limit` are bounded no further than that. (n,) [ticks]

    Where there is a limit, all levels of offload are bounded as one first, and told apart where that may be within it.
    `fine` bounds tell every number of offloaded layers apart.
    """
    n, levels = len(batch), offload.levels(batch.shape, fine=fine)
    most = batch.max_time if limit is None else np.minimum(limit, batch.max_time)
    lower, upper = np.full(n, np.inf), np.full(n, np.inf)
    chosen: list[tuple[Way, Level] | None] = [None] * n
    if len(levels) > 1 and limit is not None:
        lower = _over_levels(batch, most, (offload.merged(batch.shape),)).lower
    at = np.nonzero((lower <= most) | (limit is None or len(levels) == 1))[0]
    if len(at):
        part = _over_levels(batch if len(at) == n else batch.take(at), most[at], levels)
        lower[at], upper[at] = part.lower, part.upper
        for place, way in zip(at, part.way, strict=True):
            chosen[place] = way
    # What a rank keeps on the host whatever is offloaded may be too much already.
    hosted = offload.host_fits(batch, np.zeros((n, batch.shape.stages)))
    lower = np.where((lower > batch.max_time) | ~hosted, np.inf, lower)
    return Bounds(lower=lower, upper=np.where(upper > batch.max_time, np.inf, upper), way=tuple(chosen))


def _over_levels(batch: Batch, limit: FloatArray, levels: tuple[Level, ...]) -> Bounds:
    """The least over these levels and all ways to recompute."""
    n = len(batch)
    lower, upper = np.full(n, np.inf), np.full(n, np.inf)
    chosen: list[tuple[Way, Level] | None] = [None] * n
    quick_times = [(way, quick_time(batch, way)) for way in ways(batch.shape)]
    tables = Tables(batch)
    for level in levels:
        saved: FloatArray | None = None
        ranges: CountRange | None = None
        tail = batch.shape.virtual * quick_tail(batch, level)
        for way, time in quick_times:
            quick = time + tail
            # Beyond what a row is known to reach, a way cannot be its best.
            most = np.minimum(limit, upper)
            at = np.nonzero(quick <= most)[0]
            lower = np.where(quick <= most, lower, np.minimum(lower, quick))
            if not len(at):
                continue
            if saved is None:
                saved = offload.saved(batch, level)
            if way[0] == "count":
                ranges = ranges or count_range(tables, saved)
                at = at[way[1] >= ranges.least[at]]
                if not len(at):
                    continue
            part = tables if len(at) == n else tables.take(at)
            low, high = _bounds(part, way, level, saved[at], None if ranges is None else ranges.take(at), most[at])
            lower[at] = np.minimum(lower[at], low)
            for i in at[high < upper[at]]:
                chosen[i] = (way, level)
            upper[at] = np.minimum(upper[at], high)
    return Bounds(lower=lower, upper=upper, way=tuple(chosen))


def _bounds(
    tables: Tables, way: Way, level: Level, saved: FloatArray, ranges: CountRange | None, most: FloatArray
) -> tuple[FloatArray, FloatArray]:
    options = stage_times(tables, way, saved, ranges)
    times = np.minimum.reduce([option.time for _, option in options])
    longest = np.where(np.isfinite(times), windows(tables.batch.shape).length, 0).max(axis=2)
    if not bool(((longest > 0).all(axis=1) & (longest.sum(axis=1) >= tables.batch.shape.num_layers)).any()):
        return np.full(len(times), np.inf), np.full(len(times), np.inf)
    stages = Stages(
        times,
        np.minimum.reduce([option.reached for _, option in options]),
        *offload.tails(tables, level),
    )
    if tables.batch.shape.fixed:
        return fixed(tables.batch, stages, level)
    if tables.batch.shape.kinds == 1:
        return free(tables.batch, stages, level, most)
    return split(tables.batch, stages, level, most)


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
        stages.append(_stage_layout(pattern, int(at.length[place]), int(option.recomputed[0, s, place]), level))
    return tuple(stages)


def _stage_layout(pattern: tuple[int, ...], layers: int, count: int, level: Level) -> StageLayout:
    offloaded = layers if level.everything else min(level.high, layers)
    if len(pattern) == 1:
        count, pattern = layers, (NONE, *pattern)
    less, more = pattern
    if more == NONE:
        return StageLayout(layers=layers, offloaded=offloaded)
    full = count if more == FULL else 0
    selective = count if more == SELECTIVE else layers - full if less == SELECTIVE else 0
    return StageLayout(layers=layers, full=full, selective=selective, offloaded=offloaded)
