"""How many layers' optimizer states may live on the host: levels that cover every possibility.

A level covers the maxima (low, high] of offloaded layers over the stages: its memory is that of `high`, its cost at
least that of `low` + 1. Levels of width one are exact.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from cost_models.arrays import FloatArray
from solver.bounds.batch import Batch, Shape, windows
from solver.bounds.stage import Tables, weighted
from solver.layout import ALL_OR_NONE, SAME_COUNT, node_loads


@dataclass(frozen=True, slots=True)
class Level:
    """One range of offloaded layers, or one for every row; `everything` for back ends that offload all or nothing."""

    low: Any
    high: Any
    everything: bool = False

    @property
    def none(self) -> bool:
        """Nothing is offloaded."""
        return not (self.everything or np.any(self.high))

    @property
    def alone(self) -> Self:
        """A list of this level."""
        return replace(self, low=np.array([self.low]), high=np.array([self.high]))

    def __len__(self) -> int:
        """Levels."""
        return len(self.low)

    def take(self, index: Any) -> Self:
        """Those of some rows."""
        return replace(self, low=self.low[index], high=self.high[index]) if np.ndim(self.low) else self


def refinable(shape: Shape) -> bool:
    """Whether levels of width one are exact and others are not."""
    return shape.offloads and shape.offload == SAME_COUNT and shape.stages > 1


def levels(shape: Shape, *, fine: bool = False) -> Level:
    """Levels that together cover what the rows of a shape may offload, ascending; `fine` ones are of width one."""
    if not shape.offloads or shape.offload == ALL_OR_NONE:
        return Level(np.zeros(1), np.zeros(1), everything=shape.offloads)
    longest = shape.num_layers - shape.stages + 1 if shape.held is None else max(shape.held)
    longest = min(longest, shape.num_layers // shape.stages) if shape.offload == SAME_COUNT else longest
    if shape.stages == 1 or fine:
        edges = np.arange(longest + 1)
    else:
        edges = np.unique([*range(5), *(int(longest * i / 8) for i in range(1, 9)), longest])
    edges = edges[edges <= longest].astype(float)
    return Level(edges[:-1], edges[1:])


def deepest(shape: Shape) -> Level:
    """The level that offloads most."""
    every = levels(shape)
    return Level(float(every.low[-1]), float(every.high[-1]), every.everything)


def merged(shape: Shape) -> Level:
    """One level that covers all of them."""
    return replace(deepest(shape), low=0.0)


def saved(batch: Batch, level: Level) -> FloatArray:
    """Most memory that a level can free of a stage: that of its first `high` layers. (n, S, Q) [KiB]"""
    at = windows(batch.shape)
    if level.none:
        return np.zeros((len(batch), *at.valid.shape))
    return weighted(at.counts if level.everything else at.first(level.high), batch.memory.offload_saving)


def tails(tables: Tables, level: Level) -> tuple[FloatArray, FloatArray]:
    """Work after the last micro-batch: least and, for layouts that offload `high` layers, actual. (n, S, Q) [ticks]"""
    batch = tables.batch
    base = tables.get(("tail", 0, 0), _kept_tail)
    if level.none:
        return base, base
    at, each = windows(batch.shape), batch.time.layer_offload
    first = at.counts if level.everything else at.first(level.high)
    actual = base + weighted(first, each)
    if level.everything:
        return actual, actual
    least = base if bool((each >= 0).all()) else base + weighted(first, np.minimum(each, 0))
    if batch.shape.offload == SAME_COUNT:
        exact = np.reshape(level.high - level.low == 1, (-1, 1, 1))
        least = np.where(exact, actual, least)
    return least, actual


def _kept_tail(batch: Batch) -> FloatArray:
    """Work after the last micro-batch with nothing offloaded. (n, S, Q) [ticks]"""
    return batch.time.stage_tail[:, :, None] + weighted(windows(batch.shape).counts, batch.time.layer_tail)


def least_offload_tail(batch: Batch, level: Level) -> FloatArray:
    """Tail of whichever stage offloads at least low + 1 layers. (n,) [ticks]"""
    if level.none or level.everything:
        return np.full(len(batch), -np.inf)
    each = batch.time.layer_tail.min(axis=(1, 2)) + batch.time.layer_offload.min(axis=(1, 2))
    result: FloatArray = np.where(each >= 0, batch.time.stage_tail.min(axis=-1) + (level.low + 1) * each, -np.inf)
    return result


def offloaded(layers: FloatArray, level: Level) -> FloatArray:
    """Layers that stages with so many offload: as many as the level allows. (n, S)"""
    return layers if level.everything else np.minimum(layers, np.reshape(level.high, (-1, 1)))


def host_fits(batch: Batch, offloaded: FloatArray) -> Any:
    """Whether every node holds what its stages keep on the host; `offloaded` layers by stage, one kind. (n,) bool"""
    per_rank = batch.memory.host_constant + offloaded * batch.memory.host_layer.max(axis=-1)
    capacity = np.broadcast_to(batch.memory.host_capacity, per_rank.shape)
    fits = np.zeros(len(batch), dtype=bool)
    for ranks in np.unique(batch.ranks_per_stage):
        at = batch.ranks_per_stage == ranks
        loads = node_loads(int(ranks), batch.nodes)
        fits[at] = ((per_rank[at] @ loads.T) <= capacity[at][:, np.argmax(loads > 0, axis=1)]).all(axis=1)
    return fits
