"""A batch: rows of equal shape (stages, chunks, layout abilities) side by side, as the bounds read them."""

from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, Self

import numpy as np

from cost_models.arrays import FloatArray, IntArray
from solver.layout import FREE, Row, node_loads, prefix_counts
from solver.rounding import IntegerTime, StageMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What the rows of a batch have in common."""

    stages: int
    virtual: int
    order: tuple[int, ...]
    kinds: int
    even: bool
    mixed: bool
    recompute: int
    offload: int
    offloads: bool
    needs_full: bool

    @property
    def num_layers(self) -> int:
        """Of the model."""
        return len(self.order)

    @property
    def fixed(self) -> bool:
        """Whether the layers of every stage are given."""
        return self.even or self.virtual > 1 or self.stages == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """The runs of layers that a stage may hold, told apart by their counts; Q of them, by ascending length."""

    counts: FloatArray  # (S, Q, J)
    length: FloatArray  # (Q,)
    valid: Any  # (S, Q) bool


@cache
def windows(shape: Shape) -> Windows:
    """All runs of layers by stage: given ones when the layers are even, any otherwise."""
    prefix, layers, stages = prefix_counts(shape.order, shape.kinds), shape.num_layers, shape.stages
    if shape.fixed:
        ends = np.arange(1, stages + 1) * (layers // stages)
        counts = prefix[ends] - prefix[ends - layers // stages]
        return Windows(
            counts=counts[:, None, :].astype(float),
            length=np.array([layers // stages], dtype=float),
            valid=np.ones((stages, 1), dtype=bool),
        )
    places: dict[tuple[int, ...], list[bool]] = {}
    for length in range(1, layers - stages + 2):
        for start in range(layers - length + 1):
            key = tuple(int(x) for x in prefix[start + length] - prefix[start])
            first, last = start == 0, start + length == layers
            old = places.setdefault(key, [False, False, False])
            places[key] = [old[0] or first, old[1] or not (first or last), old[2] or last]
    keys = sorted(places, key=lambda key: (sum(key), key))
    table = np.array(keys, dtype=float)
    kinds_of_stage = [0, *[1] * (stages - 2), 2]
    valid = np.array([[places[key][at] for key in keys] for at in kinds_of_stage])
    return Windows(counts=np.broadcast_to(table, (stages, *table.shape)), length=table.sum(axis=1), valid=valid)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Integer coefficients of n rows of one shape. S stages, I instants, J kinds, R modes."""

    shape: Shape
    memory: StageMemory
    time: IntegerTime
    time_stage: FloatArray  # (n, S)
    tail_stage: FloatArray  # (n, S)
    micro_batches: IntArray  # (n,)
    ranks_per_stage: IntArray  # (n,)
    gpus_per_node: int
    max_time: FloatArray  # (n,) side constraint on v times the step

    def __len__(self) -> int:
        """Rows."""
        return len(self.micro_batches)

    def take(self, index: Any) -> Self:
        """Some of the rows."""
        shared = {"selector"}

        def cut(part: Any) -> Any:
            return replace(part, **{f.name: getattr(part, f.name)[index] for f in fields(part) if f.name not in shared})

        return replace(
            self,
            memory=cut(self.memory),
            time=cut(self.time),
            time_stage=self.time_stage[index],
            tail_stage=self.tail_stage[index],
            micro_batches=self.micro_batches[index],
            ranks_per_stage=self.ranks_per_stage[index],
            max_time=self.max_time[index],
        )

    @property
    def slope(self) -> FloatArray:
        """What the slowest stage counts for in v times the step: v m - 1."""
        return np.asarray(self.shape.virtual * self.micro_batches - 1, dtype=float)

    def row(self, i: int) -> Row:
        """Row i for the inner model."""
        shape, mem, time = self.shape, self.memory, self.time

        def ints(array: Any) -> Any:
            return tuple(ints(x) for x in array) if np.ndim(array) else int(array)

        loads = node_loads(int(self.ranks_per_stage[i]), shape.stages, self.gpus_per_node)
        return Row(
            stages=shape.stages,
            virtual=shape.virtual,
            micro_batches=int(self.micro_batches[i]),
            order=shape.order,
            even=shape.even or shape.virtual > 1,
            mixed=shape.mixed,
            recompute=shape.recompute,
            offload=shape.offload,
            offloads=shape.offloads,
            needs_full=shape.needs_full,
            constant=ints(mem.constant[i]),
            layer=ints(mem.layer[i]),
            working=ints(mem.working[i]),
            selector=ints(mem.selector),
            offload_saving=ints(mem.offload_saving[i]),
            capacity=int(mem.capacity[i]),
            host_constant=ints(mem.host_constant[i]),
            host_layer=ints(mem.host_layer[i]),
            host_capacity=int(mem.host_capacity[i]),
            node_loads=ints(loads),
            time_layer=ints(time.layer[i]),
            time_stage=ints(self.time_stage[i]),
            tail_stage=ints(self.tail_stage[i]),
            tail_layer=ints(time.layer_tail[i]),
            tail_offload=ints(time.layer_offload[i]),
            fixed=int(time.fixed[i]),
            max_time=None if np.isinf(self.max_time[i]) else int(self.max_time[i]),
        )


def is_free(shape: Shape) -> bool:
    """Whether every stage chooses its own recomputation."""
    return shape.recompute == FREE or (shape.stages == 1 and shape.virtual == 1)
