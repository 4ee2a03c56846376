"""Ways to recompute: what a back end can lay out, cut into cases whose least stage times are known."""

from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Self

import numpy as np

from cost_models.arrays import FloatArray
from solver.bounds import covering, stage
from solver.bounds.batch import Batch, Shape, is_free, windows
from solver.bounds.stage import FULL, NONE, SELECTIVE, CountRange, StageTime, Tables
from solver.layout import ONE_MODE


@dataclass(frozen=True, slots=True)
class Way:
    """How to recompute: "mode", all layers in one mode; "count", so many full layers in every stage; "equal", the same
    number of full layers in every stage, as few as fit; "each", every stage its own best pattern.
    """

    kind: Literal["mode", "count", "equal", "each"]
    mode: int = NONE
    count: Any = 0
    """A number, or one for every row; of ways that are listed, all numbers."""

    def counting(self, count: Any) -> Self:
        """The same with other counts."""
        return replace(self, count=count)


ANYHOW: Final = Way("each")


def ways(shape: Shape) -> tuple[Way, ...]:
    """Ways to recompute that together cover what a back end can lay out."""
    if shape.recompute == ONE_MODE:
        return tuple(Way("mode", r) for r in ((FULL,) if shape.needs_full else (NONE, SELECTIVE, FULL)))
    if is_free(shape):
        return (ANYHOW,)
    plain = () if shape.needs_full else (Way("mode", SELECTIVE), Way("mode", NONE))
    if shape.fixed:
        return (*plain, Way("mode", FULL), Way("equal"))
    return (*plain, Way("count", FULL, np.arange(1, shape.num_layers // shape.stages + 1)))


def modes(way: Way) -> tuple[int, ...]:
    """Modes that layers may be in under a way, beside those of a given count."""
    known = {"mode": (way.mode,), "count": (NONE,), "equal": (NONE, FULL)}
    return known.get(way.kind, (NONE, SELECTIVE, FULL))


def working(batch: Batch, way: Way) -> FloatArray:
    """Least working set of the modes that a stage may show under a way. (n, S, I) [KiB]"""
    if way.kind == "mode":
        alone: FloatArray = stage.work(batch, way.mode, way.mode)[..., 0]
        return alone
    if way.kind == "count":
        return np.minimum(stage.work(batch, NONE, FULL), stage.work(batch, FULL, FULL))[..., 0]
    least: FloatArray = batch.memory.working.min(axis=-1)
    return least


def patterns(shape: Shape) -> tuple[tuple[int, ...], ...]:
    """Sets of modes that one stage may show."""
    alone = ((NONE,), (SELECTIVE,), (FULL,))
    pairs = ((NONE, SELECTIVE), (NONE, FULL), *(((SELECTIVE, FULL),) if shape.mixed else ()))
    if shape.recompute != 2 and shape.stages == 1:
        pairs = ((NONE, FULL),)
    every = (*alone, *pairs, *(((NONE, SELECTIVE, FULL),) if shape.mixed else ()))
    return tuple(p for p in every if FULL in p) if shape.needs_full and shape.stages == 1 else every


Options = list[tuple[tuple[int, ...], StageTime]]


def stage_times(tables: Tables, way: Way, saved: FloatArray, ranges: CountRange | None = None) -> Options:
    """Times of each pattern that a way allows; `ranges` spares computing them again for every count."""
    if way.kind == "mode":
        return [((way.mode,), stage.single(tables, saved, way.mode))]
    if way.kind == "count":
        known = ranges or stage.count_range(tables, saved)
        return [((NONE, FULL), stage.counted(tables, saved, known, way.count))]
    if way.kind == "equal":
        return [((NONE, FULL), _equal(tables, saved))]
    return [(pattern, _pattern(tables, saved, pattern)) for pattern in patterns(tables.batch.shape)]


def _pattern(tables: Tables, saved: FloatArray, pattern: tuple[int, ...]) -> StageTime:
    if len(pattern) == 1:
        return stage.single(tables, saved, pattern[0])
    if len(pattern) == 2:
        return stage.pair(tables, saved, *pattern)
    return covering.triple(tables, saved)


def _equal(tables: Tables, saved: FloatArray) -> StageTime:
    """Equally many full layers in every stage, a multiple of the chunks: as few (or many) as every stage allows."""
    batch, v = tables.batch, tables.batch.shape.virtual
    low, high = stage.pair_range(tables, saved, NONE, FULL)
    fewest = np.ceil(low.max(axis=(1, 2)) / v) * v
    most = np.floor(high.min(axis=(1, 2)) / v) * v
    extra = stage.price(batch, NONE, FULL)
    fits: Any = fewest <= most
    dear: Any = (extra >= 0).all(axis=(1, 2))
    count, plain = np.where(fits, np.where(dear, fewest, most), 0)[:, None, None], stage.run_time(tables, NONE)
    # Where recomputing gains time in some pools only, each stage is bounded by its own better end of the range.
    cheapest = np.where(extra >= 0, np.where(fits, fewest, 0)[:, None, None], np.where(fits, most, 0)[:, None, None])
    time = np.where(fits[:, None, None], plain + cheapest * extra, np.inf)
    reached = np.where(fits[:, None, None], plain + count * extra, np.inf)
    count = np.broadcast_to(count, time.shape)
    if batch.shape.kinds == 1:
        return StageTime(time, reached, count)
    exact, really = stage.exactly(tables, saved, NONE, FULL, windows(batch.shape).firsts(count))
    whole = fits & really.all(axis=(1, 2))
    reached = np.where(whole[:, None, None], exact, np.inf)
    return StageTime(np.where((dear & fits)[:, None, None], exact, time), reached, count)
