"""The grid: times in ticks of 100 ns and memory in KiB, rounded anew from the tables of the cost models.

The definition (docs/what-is-proven.md): every cost rounded up, every saving and every capacity down, activations after
their multiplication with the micro-batches in flight. `solver/rounding.py` says the same to the search; this file does
not read it, so that a slip in one of them shows.
"""

import itertools
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Final, Self

import numpy as np

from cost_models.arrays import FloatArray, IntArray
from cost_models.schedule import BOTH, FIRST, LAST, MIDDLE, chunk_sizes, in_flight, spread
from cost_models.specs.model import ModelSpec
from cost_models.table import MemoryTable, TimeTable

TICK: Final = 1e-7
"""Seconds."""
UNIT: Final = 1024
"""Bytes."""


class _Rows:
    def take(self, index: Any) -> Self:
        """Some of the rows."""
        return type(self)(
            **{
                f.name: value[index] if isinstance(value := getattr(self, f.name), np.ndarray) else value
                for f in fields(self)  # type: ignore[arg-type]
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeGrid(_Rows):
    """Ticks of rows that share their stages. n rows, S stages, J layer kinds, R recompute modes."""

    layer: FloatArray  # (n, S, J, R)
    stage: FloatArray  # (n, S)
    tail_layer: FloatArray  # (n, S, J)
    tail_offload: FloatArray  # (n, S, J)
    tail_stage: FloatArray  # (n, S)
    fixed: FloatArray  # (n,)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryGrid(_Rows):
    """KiB of the same rows, by instant (I)."""

    constant: FloatArray  # (n, S, I)
    layer: FloatArray  # (n, S, I, J, R) with the micro-batches in flight
    working: FloatArray  # (n, S, I, R)
    saving: FloatArray  # (n, S, J) of an offloaded layer
    capacity: FloatArray  # (n, S)
    host_stage: FloatArray  # (n, S)
    host_layer: FloatArray  # (n, S, J)
    host_capacity: FloatArray  # (n, S) of the nodes that host the stage
    host_loading: FloatArray  # (n,) of the fullest node while weights are loaded
    most: tuple[bool, ...]  # (I,) whether the most recomputing mode of a stage works then, else the least


def _class_of(stages: int) -> list[int]:
    return [BOTH] if stages == 1 else [FIRST, *[MIDDLE] * (stages - 2), LAST]


def _each(values: FloatArray, stages: int) -> FloatArray:
    """The same for every stage. (n, ...) -> (n, S, ...)"""
    return np.broadcast_to(values[:, None], (len(values), stages, *values.shape[1:]))


def time_grid(table: TimeTable, stages: int) -> TimeGrid:
    """Ticks of rows with `stages` stages."""
    at = _class_of(stages)
    return TimeGrid(
        layer=_each(np.ceil(table.layer / TICK), stages),
        stage=np.ceil(table.stage / TICK)[:, at],
        tail_layer=_each(np.ceil(table.layer_tail / TICK), stages),
        tail_offload=_each(np.ceil(table.layer_offload / TICK), stages),
        tail_stage=np.ceil(table.stage_tail / TICK)[:, at],
        fixed=np.ceil(table.fixed / TICK),
    )


def memory_grid(table: MemoryTable, stages: int, virtual: int, steps: IntArray, layers: int) -> MemoryGrid:
    """KiB of rows with `stages` stages of `virtual` chunks and `steps` micro-batches, of a model with `layers`."""
    at = _class_of(stages)
    held = np.empty((len(steps), stages, len(table.released)))
    for stage in range(stages):
        flight = np.asarray(in_flight(stage, stages, virtual, steps, layers), dtype=float)
        held[:, stage] = np.maximum(flight[:, None] - table.released / virtual, 0.0) * table.holds_activations
    constant = table.constant[:, at] + held * table.stage_activation[:, at][:, :, None]
    of_layer = np.swapaxes(table.layer, 1, 2)[:, None, :, :, None]
    layer = of_layer + held[:, :, :, None, None] * table.activation[:, None, None]
    return MemoryGrid(
        constant=np.ceil(constant / UNIT),
        layer=np.ceil(layer / UNIT),
        working=np.ceil(table.working[:, at] / UNIT),
        saving=_each(np.floor(table.offload_saving / UNIT), stages),
        capacity=_each(np.floor(table.capacity / UNIT), stages),
        host_stage=np.ceil(table.host_constant[:, at] / UNIT),
        host_layer=_each(np.ceil(table.host_layer / UNIT), stages),
        host_capacity=_each(np.floor(table.host_capacity / UNIT), stages),
        host_loading=np.ceil(table.host_loading / UNIT),
        most=tuple(bool(s) for s in table.selector),
    )


@cache
def kind_order(model: ModelSpec, stages: int, virtual: int) -> tuple[int, ...]:
    """Kind of every layer in the order of the stages: stage 0 holds the first, of each of its chunks in turn."""
    index = {kind: i for i, kind in enumerate(model.layer_kinds)}
    kinds = [index[kind] for kind in model.layer_sequence]
    if virtual == 1:
        return tuple(kinds)
    sizes = chunk_sizes(spread(len(kinds), stages, virtual), virtual)
    left, chunks = iter(kinds), dict[tuple[int, int], list[int]]()
    for turn in range(virtual):
        for stage in range(stages):
            chunks[stage, turn] = list(itertools.islice(left, sizes[stage][turn]))
    return tuple(kind for stage in range(stages) for turn in range(virtual) for kind in chunks[stage, turn])


def node_patterns(ranks_per_stage: int, stages: int, per_node: int) -> IntArray:
    """How many ranks of each stage a node hosts, for every different node; ranks of a stage are consecutive. (P, S)"""
    stage_of = np.arange(ranks_per_stage * stages) // ranks_per_stage
    node_of = np.arange(len(stage_of)) // per_node
    load = np.zeros((int(node_of[-1]) + 1, stages), dtype=np.int64)
    np.add.at(load, (node_of, stage_of), 1)
    return np.unique(load, axis=0)
