"""One stage, one run of layers, one way to recompute: the least time under memory.

With one layer kind every result is exact for its pattern; with several, the largest saving and the smallest price of
any kind stand for all, which only lowers the bound. Shapes: (n rows, S stages, Q windows); infinite where nothing fits.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from cost_models.arrays import FloatArray
from solver.bounds.batch import Batch, windows

NONE, SELECTIVE, FULL = range(3)


@dataclass(frozen=True, slots=True)
class StageTime:
    """Least micro-batch time of each stage and window, and the recomputed layers that reach it."""

    time: FloatArray
    recomputed: FloatArray


def load(batch: Batch, mode: int) -> FloatArray:
    """Memory of each window with all its layers in one mode, without working set. (n, S, Q, I) [KiB]"""
    counts = windows(batch.shape).counts
    total = batch.memory.constant[:, :, None, :]
    for kind in range(batch.shape.kinds):
        total = total + counts[None, :, :, kind, None] * batch.memory.layer[:, :, None, :, kind, mode]
    return total


def work(batch: Batch, least: int, most: int) -> FloatArray:
    """Working set when these are the extreme modes of a stage. (n, S, 1, I) [KiB]"""
    chosen: FloatArray = np.where(
        batch.memory.selector > 0, batch.memory.working[..., most], batch.memory.working[..., least]
    )
    return chosen[:, :, None, :]


def run_time(batch: Batch, mode: int) -> FloatArray:
    """Time of each window with all its layers in one mode, with the stage's constant. (n, S, Q) [ticks]"""
    counts = windows(batch.shape).counts
    total = batch.time_stage[:, :, None]
    for kind in range(batch.shape.kinds):
        total = total + counts[None, :, :, kind] * batch.time.layer[:, None, None, kind, mode]
    return total


def _room(batch: Batch, saved: FloatArray) -> FloatArray:
    return (batch.memory.capacity[:, None, None] + saved)[..., None]


def _with_validity(batch: Batch, time: FloatArray, fits: Any) -> FloatArray:
    result: FloatArray = np.where(fits & windows(batch.shape).valid[None], time, np.inf)
    return result


def single(batch: Batch, saved: FloatArray, mode: int) -> StageTime:
    """All layers of the stage in one mode."""
    fits = (load(batch, mode) + work(batch, mode, mode) <= _room(batch, saved)).all(axis=-1)
    length = np.broadcast_to(windows(batch.shape).length, fits.shape)
    return StageTime(_with_validity(batch, run_time(batch, mode), fits), length * (mode != NONE))


def pair_range(batch: Batch, saved: FloatArray, less: int, more: int) -> tuple[FloatArray, FloatArray]:
    """Fewest and most layers in mode `more`, the rest in `less`, both present; empty ranges where nothing fits."""
    need = load(batch, less) + work(batch, less, more) - _room(batch, saved)
    saving = (batch.memory.layer[..., less] - batch.memory.layer[..., more]).max(axis=-1)[:, :, None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = need / saving
    at_least = np.where(saving > 0, np.ceil(ratio), np.where((saving == 0) & (need > 0), np.inf, -np.inf)).max(axis=-1)
    at_most = np.where(saving < 0, np.floor(ratio), np.inf).min(axis=-1)
    length = windows(batch.shape).length
    return np.maximum(at_least, 1), np.minimum(at_most, length - 1)


def price(batch: Batch, less: int, more: int) -> FloatArray:
    """Least extra time of one more layer in mode `more`. (n, 1, 1) [ticks]"""
    extra: FloatArray = (batch.time.layer[..., more] - batch.time.layer[..., less]).min(axis=-1)
    return extra[:, None, None]


def pair(batch: Batch, saved: FloatArray, less: int, more: int) -> StageTime:
    """Some layers in mode `more`, the others in `less`: the fewest that fit."""
    low, high = pair_range(batch, saved, less, more)
    extra = price(batch, less, more)
    count = np.where(extra >= 0, low, high)
    fits = low <= high
    count = np.where(fits, count, 0)
    return StageTime(_with_validity(batch, run_time(batch, less) + count * extra, fits), count)


@dataclass(frozen=True, slots=True)
class CountRange:
    """What exact counts of fully recomputed layers need, computed once for all counts."""

    fewest: FloatArray
    most: FloatArray
    whole: FloatArray
    """Time of each window with every layer recomputed."""
    plain: FloatArray
    """Time of each window with none recomputed, whether it fits or not."""

    def take(self, index: Any) -> "CountRange":
        """Some of the rows."""
        return CountRange(self.fewest[index], self.most[index], self.whole[index], self.plain[index])


def count_range(batch: Batch, saved: FloatArray) -> CountRange:
    """The ranges of `counted`."""
    low, high = pair_range(batch, saved, NONE, FULL)
    return CountRange(low, high, single(batch, saved, FULL).time, run_time(batch, NONE))


def counted(batch: Batch, ranges: CountRange, count: float) -> StageTime:
    """Exactly `count` layers fully recomputed (at least one), the rest not at all."""
    fits = (ranges.fewest <= count) & (count <= ranges.most)
    mixed = _with_validity(batch, ranges.plain + count * price(batch, NONE, FULL), fits)
    time = np.where(windows(batch.shape).length == count, ranges.whole, mixed)
    return StageTime(time, np.full(time.shape, float(count)))


def triple(batch: Batch, saved: FloatArray) -> StageTime:
    """All three modes in one stage: a lower bound by the covering relaxation of each instant.

    min r1 n1 + r2 n2 subject to n1 d1 + n2 d2 >= need is need x min(r1/d1, r2/d2) over positive d.
    """
    need = load(batch, NONE) + work(batch, NONE, FULL) - _room(batch, saved)
    rate = np.full(need.shape, np.inf)
    for mode in (SELECTIVE, FULL):
        saving = (batch.memory.layer[..., NONE] - batch.memory.layer[..., mode]).max(axis=-1)[:, :, None, :]
        with np.errstate(divide="ignore", invalid="ignore"):
            rate = np.minimum(rate, np.where(saving > 0, price(batch, NONE, mode)[..., None] / saving, np.inf))
    with np.errstate(invalid="ignore"):
        covering = np.where(need > 0, need * rate, 0.0).max(axis=-1)
    length = windows(batch.shape).length
    fits = np.isfinite(covering) & (length >= 3)
    both = price(batch, NONE, SELECTIVE) + price(batch, NONE, FULL)
    cheapest = np.minimum(np.minimum(price(batch, NONE, SELECTIVE), price(batch, NONE, FULL)), 0) * length
    extra = np.where(cheapest < 0, cheapest, np.maximum(both, np.floor(covering * (1 - 1e-12))))
    extra = np.where(fits, extra, 0)
    return StageTime(_with_validity(batch, run_time(batch, NONE) + extra, fits), np.full(fits.shape, np.nan))
