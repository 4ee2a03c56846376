"""The bound of a row: over every way to recompute and offload, the least step time, and the layout that reaches it.

Given layers, the stages are independent but for the maxima, so the bound of one layer kind is the optimum. With free
layers, tau is the least slowest stage and the sum is bounded by prices per layer (a Lagrangian bound).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from cost_models.arrays import FloatArray
from solver.bounds import offload, stage
from solver.bounds.batch import Batch, Shape, is_free, windows
from solver.bounds.free import by_length, counts_of, greedy_layers, slowest_stage, sum_bound
from solver.bounds.offload import Level
from solver.bounds.stage import FULL, NONE, SELECTIVE, CountRange, StageTime
from solver.layout import ONE_MODE, Layout, StageLayout

Way = tuple[str, float, float]
"""How to recompute: ("mode", r, 0) all layers in one mode; ("count", n, 0) n full layers in every stage; ("pair", a, b)
some stages' layers in a, some in b; ("equal", 0, 0) the same number of full layers in every stage, as few as fit;
("each", 0, 0) every stage its own best pattern."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Bounds on v times the step, in ticks."""

    lower: FloatArray
    upper: FloatArray
    """Value of a feasible layout, where one was found; infinite otherwise."""
    way: tuple[tuple[Way, Level] | None, ...]
    """Of the layout behind `upper`."""


def ways(shape: Shape) -> Iterator[Way]:
    """Ways to recompute that together cover what a back end can lay out."""
    if shape.recompute == ONE_MODE:
        yield from (("mode", r, 0) for r in ((FULL,) if shape.needs_full else (NONE, SELECTIVE, FULL)))
    elif is_free(shape):
        yield ("each", 0, 0)
    else:
        if not shape.needs_full:
            yield ("mode", SELECTIVE, 0)
            yield ("mode", NONE, 0)
        if shape.fixed:
            yield ("mode", FULL, 0)
            yield ("equal", 0, 0)
        else:
            yield from (("count", n, 0) for n in range(1, shape.num_layers // shape.stages + 1))


def patterns(shape: Shape) -> tuple[tuple[int, ...], ...]:
    """Sets of modes that one stage may show."""
    alone = ((NONE,), (SELECTIVE,), (FULL,))
    pairs = ((NONE, SELECTIVE), (NONE, FULL), *(((SELECTIVE, FULL),) if shape.mixed else ()))
    if shape.recompute != 2 and shape.stages == 1:
        pairs = ((NONE, FULL),)
    every = (*alone, *pairs, *(((NONE, SELECTIVE, FULL),) if shape.mixed else ()))
    return tuple(p for p in every if FULL in p) if shape.needs_full and shape.stages == 1 else every


Options = list[tuple[tuple[int, ...], StageTime]]


def stage_times(batch: Batch, way: Way, saved: FloatArray, ranges: CountRange | None = None) -> Options:
    """Times of each pattern that a way allows; `ranges` spares computing them again for every count."""
    name, first, _ = way
    if name == "mode":
        return [((int(first),), stage.single(batch, saved, int(first)))]
    if name == "count":
        return [((NONE, FULL), stage.counted(batch, ranges or stage.count_range(batch, saved), first))]
    if name == "equal":
        return [((NONE, FULL), _equal(batch, saved))]
    return [(pattern, _pattern(batch, saved, pattern)) for pattern in patterns(batch.shape)]


def _pattern(batch: Batch, saved: FloatArray, pattern: tuple[int, ...]) -> StageTime:
    if len(pattern) == 1:
        return stage.single(batch, saved, pattern[0])
    if len(pattern) == 2:
        return stage.pair(batch, saved, *pattern)
    return stage.triple(batch, saved)


def _equal(batch: Batch, saved: FloatArray) -> StageTime:
    """Equally many full layers in every stage, a multiple of the chunks: as few (or many) as every stage allows."""
    v = batch.shape.virtual
    low, high = stage.pair_range(batch, saved, NONE, FULL)
    fewest = np.ceil(low.max(axis=(1, 2)) / v) * v
    most = np.floor(high.min(axis=(1, 2)) / v) * v
    extra = stage.price(batch, NONE, FULL)
    fits = fewest <= most
    count = np.where(fits, np.where(extra[:, 0, 0] >= 0, fewest, most), 0)[:, None, None]
    time = stage.run_time(batch, NONE) + count * extra
    return StageTime(np.where(fits[:, None, None], time, np.inf), np.broadcast_to(count, time.shape))


def row_bounds(batch: Batch, limit: FloatArray | None = None) -> Bounds:
    """Bounds of every row of a batch. Ways that cannot reach `limit` are bounded no further than that. (n,) [ticks]"""
    n = len(batch)
    lower, upper = np.full(n, np.inf), np.full(n, np.inf)
    chosen: list[tuple[Way, Level] | None] = [None] * n
    limit = batch.max_time if limit is None else np.minimum(limit, batch.max_time)
    quick_times = [(way, quick_time(batch, way)) for way in ways(batch.shape)]
    for level in offload.levels(batch.shape):
        saved: FloatArray | None = None
        ranges: CountRange | None = None
        tail = batch.shape.virtual * quick_tail(batch, level)
        for way, time in quick_times:
            quick = time + tail
            at = np.nonzero(quick <= limit)[0]
            lower = np.where(quick <= limit, lower, np.minimum(lower, quick))
            if not len(at):
                continue
            if saved is None:
                saved = offload.saved(batch, level)
            if way[0] == "count" and ranges is None:
                ranges = stage.count_range(batch, saved)
            low, high = _bounds(batch.take(at), way, level, saved[at], None if ranges is None else ranges.take(at))
            lower[at] = np.minimum(lower[at], low)
            for i in at[high < upper[at]]:
                chosen[i] = (way, level)
            upper[at] = np.minimum(upper[at], high)
    # What a rank keeps on the host whatever is offloaded may be too much already.
    hosted = offload.host_fits(batch, np.zeros((n, batch.shape.stages)))
    lower = np.where((lower > batch.max_time) | ~hosted, np.inf, lower)
    return Bounds(lower=lower, upper=np.where(upper > batch.max_time, np.inf, upper), way=tuple(chosen))


def quick_time(batch: Batch, way: Way) -> FloatArray:
    """Micro-batches of a way, without looking at memory: what it recomputes, at least. (n,) [ticks]"""
    name, first, _ = way
    every = counts_of(batch.shape)
    modes = batch.time.layer[:, :, int(first)] if name == "mode" else batch.time.layer.min(axis=2)
    total = batch.time_stage.sum(axis=1) + modes @ every
    if name == "count":
        plain = batch.time_stage.sum(axis=1) + batch.time.layer[:, :, NONE] @ every
        total = plain + first * batch.shape.stages * stage.price(batch, NONE, FULL)[:, 0, 0]
    slowest = np.ceil(total / batch.shape.stages)
    result: FloatArray = batch.slope * slowest + np.maximum(total, slowest)
    return result


def quick_tail(batch: Batch, level: Level) -> FloatArray:
    """Work after the last micro-batch of a level, at least, with what does not depend on the layout. (n,) [ticks]"""
    tail = batch.tail_stage.max(axis=1) + np.minimum(batch.time.layer_tail.min(axis=1), 0) * batch.shape.num_layers
    if batch.shape.offloads:
        tail = tail + np.minimum(batch.time.layer_offload.min(axis=1), 0) * batch.shape.num_layers
        tail = np.maximum(tail, offload.least_offload_tail(batch, level))
    result: FloatArray = tail + batch.time.fixed
    return result


def _bounds(
    batch: Batch, way: Way, level: Level, saved: FloatArray, ranges: CountRange | None
) -> tuple[FloatArray, FloatArray]:
    options = stage_times(batch, way, saved, ranges)
    times = np.minimum.reduce([option.time for _, option in options])
    exact = _reached(batch, options, level)
    reached = np.minimum.reduce([option.time for _, option in exact]) if exact else np.full(times.shape, np.inf)
    low_tail, tail = offload.tails(batch, level)
    if batch.shape.fixed:
        return _fixed(batch, times, reached, low_tail, tail, level)
    return _free(batch, times, reached, low_tail, tail, level)


def _reached(batch: Batch, options: Options, level: Level) -> Options:
    """Options whose time some layout has exactly: with several layer kinds, only those that treat all layers alike."""
    if batch.shape.kinds == 1:
        return [option for option in options if not np.isnan(option[1].recomputed).any()]
    alike = level.none or level.everything
    return [option for option in options if len(option[0]) == 1 and alike]


def _objective(batch: Batch, slowest: FloatArray, total: FloatArray, tail: FloatArray) -> FloatArray:
    possible = np.isfinite(slowest) & np.isfinite(total)
    weighed = batch.slope * np.where(possible, slowest, 0) + total
    return np.where(possible, weighed + batch.shape.virtual * (tail + batch.time.fixed), np.inf)


def _fixed(
    batch: Batch, times: FloatArray, reached: FloatArray, low_tail: FloatArray, tail: FloatArray, level: Level
) -> tuple[FloatArray, FloatArray]:
    """Given layers: the stages are independent but for the maxima."""
    least = np.maximum(low_tail[:, :, 0].max(axis=1), offload.least_offload_tail(batch, level))
    lower = _objective(batch, times.max(axis=(1, 2)), times.sum(axis=(1, 2)), least)
    length = windows(batch.shape).length[0]
    amount = length if level.everything else min(level.high, length)
    host = offload.host_fits(batch, np.full((len(batch), batch.shape.stages), float(amount)))
    upper = _objective(batch, reached.max(axis=(1, 2)), reached.sum(axis=(1, 2)), tail[:, :, 0].max(axis=1))
    return lower, np.where(host, upper, np.inf)


def _free(
    batch: Batch, times: FloatArray, reached: FloatArray, low_tail: FloatArray, tail: FloatArray, level: Level
) -> tuple[FloatArray, FloatArray]:
    """Free layers."""
    table = by_length(batch, times)
    layers = batch.shape.num_layers
    tau, total = slowest_stage(table, layers), sum_bound(batch, times)
    tau = np.maximum(tau, np.ceil(total / batch.shape.stages))
    mean_tail = np.ceil(
        (batch.tail_stage.sum(axis=1) + batch.time.layer_tail @ counts_of(batch.shape)) / batch.shape.stages
    )
    if not level.none:
        mean_tail = np.where(batch.time.layer_offload.min(axis=-1) >= 0, mean_tail, -np.inf)
    least = np.maximum.reduce(
        [
            np.where(windows(batch.shape).valid[None], low_tail, np.inf).min(axis=2).max(axis=1),
            mean_tail,
            offload.least_offload_tail(batch, level),
        ]
    )
    lower = _objective(batch, tau, np.maximum(total, tau), least)
    lower = np.where(np.isfinite(tau), lower, np.inf)
    if batch.shape.kinds > 1:
        return lower, np.full(len(batch), np.inf)
    return lower, _greedy_value(batch, reached, tail, level)


def _greedy_value(batch: Batch, reached: FloatArray, tail: FloatArray, level: Level) -> FloatArray:
    layers = greedy_layers(
        reached, slowest_stage(by_length(batch, reached), batch.shape.num_layers), batch.shape.num_layers
    )
    ok: Any = (layers > 0).all(axis=1)
    at = np.maximum(layers - 1, 0)[:, :, None]
    time = np.take_along_axis(reached, at, axis=2)[:, :, 0]
    tails = np.take_along_axis(tail, at, axis=2)[:, :, 0].max(axis=1)
    amount = layers if level.everything else np.minimum(layers, level.high)
    ok = ok & offload.host_fits(batch, amount.astype(float)) & np.isfinite(time).all(axis=1)
    value = _objective(batch, time.max(axis=1), time.sum(axis=1), tails)
    result: FloatArray = np.where(ok, value, np.inf)
    return result


def layout_of(batch: Batch, way: Way, level: Level) -> Layout:
    """The layout behind the upper bound of a batch of one row."""
    saved = offload.saved(batch, level)
    options = _reached(batch, stage_times(batch, way, saved), level)
    stacked = np.stack([option.time[0] for _, option in options])
    if batch.shape.fixed:
        places = np.zeros(batch.shape.stages, dtype=int)
    else:
        reached = stacked.min(axis=0)[None]
        places = (
            greedy_layers(
                reached, slowest_stage(by_length(batch, reached), batch.shape.num_layers), batch.shape.num_layers
            )[0].astype(int)
            - 1
        )
    stages = []
    for s, place in enumerate(places):
        pattern, option = options[int(stacked[:, s, place].argmin())]
        layers = int(windows(batch.shape).length[place])
        stages.append(_stage_layout(pattern, layers, int(option.recomputed[0, s, place]), level))
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
