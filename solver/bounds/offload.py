"""How many layers' optimizer states may live on the host: levels that cover every possibility.

A level covers the maxima (low, high] of offloaded layers over the stages: its memory is that of `high`, its cost at
least that of `low` + 1. Levels of width one are exact.
"""

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from cost_models.arrays import FloatArray
from solver.bounds.batch import Batch, Shape, windows
from solver.bounds.stage import Tables, weighted
from solver.layout import ALL_OR_NONE, SAME_COUNT, node_loads


@dataclass(frozen=True, slots=True)
class Level:
    """One range of offloaded layers; `everything` for back ends that offload all or nothing."""

    low: int
    high: int
    everything: bool = False

    @property
    def none(self) -> bool:
        """Nothing is offloaded."""
        return self.high == 0 and not self.everything


def refinable(shape: Shape) -> bool:
    """Whether levels of width one are exact and others are not."""
    return shape.offloads and shape.offload == SAME_COUNT and shape.stages > 1


def levels(shape: Shape, *, fine: bool = False) -> tuple[Level, ...]:
    """Levels that together cover what the rows of a shape may offload; `fine` ones are of width one."""
    if not shape.offloads:
        return (Level(0, 0),)
    if shape.offload == ALL_OR_NONE:
        return (Level(0, 0, everything=True),)
    longest = (
        shape.num_layers // shape.stages
        if shape.fixed or shape.offload == SAME_COUNT
        else shape.num_layers - shape.stages + 1
    )
    if shape.stages == 1 or fine:
        return tuple(Level(w - 1, w) for w in range(1, longest + 1))
    edges = sorted({*range(5), *(int(longest * i / 8) for i in range(1, 9)), longest})
    edges = [edge for edge in edges if edge <= longest]
    return tuple(Level(low, high) for low, high in itertools.pairwise(edges))


def deepest(shape: Shape) -> Level:
    """The level that offloads most."""
    return max(levels(shape), key=lambda level: (level.everything, level.high))


def merged(shape: Shape) -> Level:
    """One level that covers all of them."""
    last = deepest(shape)
    return Level(0, last.high, last.everything)


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
    key = level.high if not level.everything else -1
    actual = tables.get(
        ("offload tail", key, 0), lambda batch: _kept_tail(batch) + weighted(first, batch.time.layer_offload)
    )
    exact = batch.shape.offload == SAME_COUNT and level.high - level.low == 1
    if level.everything or exact:
        return actual, actual
    if bool((each >= 0).all()):
        return base, actual
    return base + weighted(first, np.minimum(each, 0)), actual


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
