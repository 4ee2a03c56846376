"""One stage, one run of layers, one way to recompute: the least time under memory.

`time` never exceeds what any layout of that pattern takes; `reached` is what one layout takes that fits, infinite where
none is known. With one layer kind both agree; with several, a pattern of two modes is bounded by the largest saving and
the smallest price of any kind, then its least count of recomputed layers is tried layer by layer. Shapes: (n rows,
S stages, Q windows); infinite where nothing fits.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cost_models.arrays import FloatArray
from solver.bounds.batch import Batch, windows

NONE, SELECTIVE, FULL = range(3)
TRIES = 3
"""Counts of recomputed layers that are tried beyond the first that may fit, where more may need more."""


@dataclass(frozen=True, slots=True)
class StageTime:
    """Least micro-batch time of each stage and window, and the recomputed layers that reach it."""

    time: FloatArray
    reached: FloatArray
    recomputed: FloatArray


@dataclass(slots=True)
class Tables:
    """A batch with what does not depend on the way or the level, computed once for all of them."""

    batch: Batch
    source: "tuple[Tables, Any] | None" = None
    known: dict[tuple[str, int, int], FloatArray] = field(default_factory=dict)

    def take(self, index: Any) -> "Tables":
        """Some of the rows; what their batch already knows is not computed again."""
        return Tables(self.batch.take(index), (self, index))

    def get(self, key: tuple[str, int, int], make: Callable[[Batch], FloatArray]) -> FloatArray:
        """A table by name and modes."""
        if key not in self.known:
            if self.source is None:
                self.known[key] = make(self.batch)
            else:
                whole, index = self.source
                self.known[key] = whole.get(key, make)[index]
        return self.known[key]


def weighted(counts: FloatArray, by_kind: FloatArray) -> FloatArray:
    """Sum over kinds: (S, Q, J) or (n, S, Q, J) counts, (n, P, J) values -> (n, S, Q)."""
    total = counts[..., 0] * by_kind[:, :, None, 0]
    for kind in range(1, by_kind.shape[-1]):
        total = total + counts[..., kind] * by_kind[:, :, None, kind]
    return total


def _weighted_instants(counts: FloatArray, layer: FloatArray) -> FloatArray:
    """Sum over kinds: (S, Q, J) or (n, S, Q, J) counts, (n, S, I, J) values -> (n, S, I, Q)."""
    if layer.shape[-1] == 1:
        result: FloatArray = layer * counts[..., None, :, 0]
        return result
    product: FloatArray = np.matmul(layer, np.swapaxes(counts, -1, -2))
    return product


def load(batch: Batch, mode: int) -> FloatArray:
    """Memory of each window with all its layers in one mode, without working set. (n, S, I, Q) [KiB]"""
    total = _weighted_instants(windows(batch.shape).counts, batch.memory.layer[..., mode])
    total += batch.memory.constant[..., None]
    return total


def work(batch: Batch, least: int, most: int) -> FloatArray:
    """Working set when these are the extreme modes of a stage. (n, S, I, 1) [KiB]"""
    chosen: FloatArray = np.where(
        batch.memory.selector > 0, batch.memory.working[..., most], batch.memory.working[..., least]
    )
    return chosen[..., None]


def need(tables: Tables, less: int, more: int) -> FloatArray:
    """Memory with all layers in mode `less` and the working set of both modes. (n, S, I, Q) [KiB]"""
    return tables.get(("need", less, more), lambda batch: load(batch, less) + work(batch, less, more))


def peak(tables: Tables, mode: int) -> FloatArray:
    """Most memory of any instant with all layers in one mode. (n, S, Q) [KiB]"""

    def make(batch: Batch) -> FloatArray:
        highest: FloatArray = (load(batch, mode) + work(batch, mode, mode)).max(axis=2)
        return highest

    return tables.get(("peak", mode, mode), make)


def run_time(tables: Tables, mode: int) -> FloatArray:
    """Time of each window with all its layers in one mode, with the stage's constant. (n, S, Q) [ticks]"""

    def make(batch: Batch) -> FloatArray:
        return batch.time.stage[:, :, None] + weighted(windows(batch.shape).counts, batch.time.layer[..., mode])

    return tables.get(("time", mode, mode), make)


def room(batch: Batch, saved: FloatArray) -> FloatArray:
    """What each window may take when its stage frees `saved`. (n, S, Q) [KiB]"""
    return batch.memory.capacity[:, :, None] + saved


def _with_validity(batch: Batch, time: FloatArray, fits: Any) -> FloatArray:
    result: FloatArray = np.where(fits & windows(batch.shape).valid[None], time, np.inf)
    return result


def single(tables: Tables, saved: FloatArray, mode: int) -> StageTime:
    """All layers of the stage in one mode."""
    batch = tables.batch
    time = _with_validity(batch, run_time(tables, mode), peak(tables, mode) <= room(batch, saved))
    length = np.broadcast_to(windows(batch.shape).length, time.shape)
    return StageTime(time, time, length * (mode != NONE))


def pair_range(tables: Tables, saved: FloatArray, less: int, more: int) -> tuple[FloatArray, FloatArray]:
    """Fewest and most layers in mode `more`, the rest in `less`, both present; empty ranges where nothing fits."""
    batch = tables.batch
    lacking = need(tables, less, more) - room(batch, saved)[:, :, None, :]
    saving = (batch.memory.layer[..., less] - batch.memory.layer[..., more]).max(axis=-1)[..., None]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = lacking / saving
    at_least = np.where(saving > 0, np.ceil(ratio), np.where((saving == 0) & (lacking > 0), np.inf, -np.inf))
    at_most = np.where(saving < 0, np.floor(ratio), np.inf)
    length = windows(batch.shape).length
    return np.maximum(at_least.max(axis=2), 1), np.minimum(at_most.min(axis=2), length - 1)


def prices(batch: Batch, less: int, more: int) -> FloatArray:
    """Extra time of one more layer in mode `more`, by kind. (n, P, J) [ticks]"""
    extra: FloatArray = batch.time.layer[..., more] - batch.time.layer[..., less]
    return extra


def price(batch: Batch, less: int, more: int) -> FloatArray:
    """Least extra time of one more layer in mode `more`. (n, P, 1) [ticks]"""
    least: FloatArray = prices(batch, less, more).min(axis=-1)[:, :, None]
    return least


def exactly(tables: Tables, saved: FloatArray, less: int, more: int, recomputed: FloatArray) -> tuple[FloatArray, Any]:
    """Time, and whether it fits, with the first layers of each window in mode `more`; `recomputed` by kind."""
    batch = tables.batch
    saving = batch.memory.layer[..., less] - batch.memory.layer[..., more]
    left = need(tables, less, more) - _weighted_instants(recomputed, saving)
    time = run_time(tables, less) + weighted(recomputed, prices(batch, less, more))
    return time, left.max(axis=2) <= room(batch, saved)


def pair(tables: Tables, saved: FloatArray, less: int, more: int) -> StageTime:
    """Some layers in mode `more`, the others in `less`: the fewest that fit."""
    batch = tables.batch
    low, high = pair_range(tables, saved, less, more)
    extra = price(batch, less, more)
    count = np.where(extra >= 0, low, high)
    possible = low <= high
    count = np.where(possible, count, 0)
    relaxed = run_time(tables, less) + count * extra
    if batch.shape.kinds == 1:
        time = _with_validity(batch, relaxed, possible)
        return StageTime(time, time, count)
    return _tried(tables, saved, (less, more), (count, high, relaxed))


def _tried(
    tables: Tables, saved: FloatArray, modes: tuple[int, int], start: tuple[FloatArray, FloatArray, FloatArray]
) -> StageTime:
    """A pair with several layer kinds: counts from the relaxed one upwards, each known to fit or not.

    Where recomputing never gains time, a count that does not fit raises the bound to the next one.
    """
    count, high, relaxed = start
    batch = tables.batch
    dear = price(batch, *modes) >= 0
    count = _least_fitting(tables, saved, modes, count, high)
    possible, found = count > 0, np.zeros(count.shape, dtype=bool)
    reached = np.full(count.shape, np.inf)
    for attempt in range(TRIES + 1):
        recomputed = windows(batch.shape).firsts(count)
        if attempt == TRIES:
            time = run_time(tables, modes[0]) + weighted(recomputed, prices(batch, *modes))
            relaxed = np.where(dear & ~found & possible, time, relaxed)
            break
        time, fits = exactly(tables, saved, *modes, recomputed)
        fits = fits & possible & ~found
        reached = np.where(fits, time, reached)
        relaxed = np.where(dear & fits, time, relaxed)
        found |= fits
        if bool((found | ~possible).all()):
            break
        count = np.where(found | ~possible | ~dear, count, count + 1)
        possible &= found | ~dear | (count <= high)
    return StageTime(
        _with_validity(batch, relaxed, possible), _with_validity(batch, reached, found), np.where(found, count, 0)
    )


def _least_fitting(
    tables: Tables, saved: FloatArray, modes: tuple[int, int], count: FloatArray, high: FloatArray
) -> FloatArray:
    """The first count that fits, by halving, where every recomputed layer frees memory and none gains time.

    Elsewhere, and where none fits, a count that no fitting one is below.
    """
    batch = tables.batch
    saving = batch.memory.layer[..., modes[0]] - batch.memory.layer[..., modes[1]]
    monotone = (saving.min(axis=(2, 3)) >= 0)[:, :, None] & (price(batch, *modes) >= 0)
    low, top = count, np.where(monotone & (count > 0), np.minimum(high, windows(batch.shape).length), count)
    for _ in range(int(windows(batch.shape).length.max()).bit_length()):
        if bool((low >= top).all()):
            break
        middle = np.floor((low + top) / 2)
        _, fits = exactly(tables, saved, *modes, windows(batch.shape).firsts(middle))
        low, top = np.where(fits | (low >= top), low, middle + 1), np.where(fits, middle, top)
    return low


@dataclass(frozen=True, slots=True)
class CountRange:
    """What exact counts of fully recomputed layers need, computed once for all counts."""

    fewest: FloatArray
    most: FloatArray
    whole: FloatArray
    """Time of each window with every layer recomputed."""
    least: FloatArray
    """No smaller count lets the windows that fit hold all layers. (n,)"""

    def take(self, index: Any) -> "CountRange":
        """Some of the rows."""
        return CountRange(self.fewest[index], self.most[index], self.whole[index], self.least[index])


def count_range(tables: Tables, saved: FloatArray) -> CountRange:
    """The ranges of `counted`."""
    low, high = pair_range(tables, saved, NONE, FULL)
    whole, at, shape = single(tables, saved, FULL).time, windows(tables.batch.shape), tables.batch.shape
    needed = np.where((low <= high) & at.valid[None], low, np.inf)
    needed = np.minimum(needed, np.where(np.isfinite(whole), at.length, np.inf))
    least = np.full(len(needed), np.inf)
    for count in range(shape.num_layers // shape.stages, 0, -1):
        held = np.where(needed <= count, at.length, 0).max(axis=2)
        least = np.where((held.sum(axis=1) >= shape.num_layers) & (held > 0).all(axis=1), count, least)
        if not bool((least == count).any()):
            break
    return CountRange(low, high, whole, least)


def counted(tables: Tables, saved: FloatArray, ranges: CountRange, counts: Any) -> StageTime:
    """Exactly so many layers fully recomputed (at least one), the rest not at all."""
    batch, count = tables.batch, np.reshape(counts, (-1, 1, 1)).astype(float)
    fits = (ranges.fewest <= count) & (count <= ranges.most)
    if batch.shape.kinds == 1:
        mixed = _with_validity(batch, run_time(tables, NONE) + count * price(batch, NONE, FULL), fits)
    else:
        exact, really = exactly(tables, saved, NONE, FULL, windows(batch.shape).first(np.ravel(counts)))
        mixed = _with_validity(batch, exact, fits & really)
    time = np.where(windows(batch.shape).length == count, ranges.whole, mixed)
    return StageTime(time, time, np.broadcast_to(count, time.shape))
