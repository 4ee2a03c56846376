"""A batch: rows of equal shape (stages, chunks, layout abilities) side by side, as the bounds read them."""

import functools
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, Self

import numpy as np

from cost_models.arrays import FloatArray, IntArray
from solver.layout import FREE, Row, node_loads, prefix_counts
from solver.rounding import StageMemory, StageTimes


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
    given: tuple[int, ...] | None = None
    """Layers of each stage, where they are given and not equal."""
    longest: int | None = None
    """Layers that a stage holds at most, where a limit on the step says so."""

    @property
    def num_layers(self) -> int:
        """Of the model."""
        return len(self.order)

    @property
    def fixed(self) -> bool:
        """Whether the layers of every stage are given."""
        return self.held is not None

    @property
    def held(self) -> tuple[int, ...] | None:
        """Layers of each stage, where they are given."""
        even = self.even or self.virtual > 1 or self.stages == 1
        return self.given or ((self.num_layers // self.stages,) * self.stages if even else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """The runs of layers that a stage may hold, told apart by their kinds in order; Q of them, by ascending length."""

    counts: FloatArray  # (S, Q, J)
    length: FloatArray  # (S, Q)
    valid: Any  # (S, Q) bool
    prefix: FloatArray
    """Layers by kind among the first k of each window, all of them for larger k. (S, Q, K + 1, J)"""
    places: IntArray
    """Window of the layers [a, b); Q where there is none. (L + 1, L + 1)"""

    def first(self, count: Any) -> FloatArray:
        """Layers by kind among the first `count` of each window: (S, Q, J), or (n, S, Q, J) for n counts."""
        at = np.minimum(count, self.prefix.shape[2] - 1).astype(np.int64)
        result: FloatArray = self.prefix[:, :, at]
        return np.moveaxis(result, 2, 0) if at.ndim else result

    def firsts(self, count: FloatArray) -> FloatArray:
        """The same for as many counts as windows and rows. (n, S, Q) -> (n, S, Q, J)"""
        stages, size = self.valid.shape
        at = np.clip(count, 0, self.prefix.shape[2] - 1).astype(np.int64)
        result: FloatArray = self.prefix[np.arange(stages)[:, None], np.arange(size), at]
        return result


def windows(shape: Shape) -> Windows:
    """All runs of layers by stage: one each where they are given, any otherwise."""
    if shape.held is not None:
        return _given_windows(shape.order, shape.kinds, shape.held)
    return _windows(shape.order, shape.kinds, shape.stages, shape.longest or shape.num_layers)


@cache
def _given_windows(order: tuple[int, ...], kinds: int, held: tuple[int, ...]) -> Windows:
    length, prefix = np.array(held), prefix_counts(order, kinds)
    starts = (np.cumsum(length) - length)[:, None]
    upto = prefix[starts + np.minimum(np.arange(max(held) + 1), length[:, None])] - prefix[starts]
    return Windows(
        counts=upto[:, None, -1].astype(float),
        length=length[:, None].astype(float),
        valid=np.ones((len(held), 1), dtype=bool),
        prefix=upto[:, None].astype(float),
        places=np.zeros((0, 0), dtype=np.int64),
    )


@cache
def _windows(order: tuple[int, ...], kinds: int, stages: int, most: int) -> Windows:
    layers, prefix = len(order), prefix_counts(order, kinds)
    seen: dict[tuple[int, ...], int] = {}
    starts_at: list[int] = []
    kinds_valid: list[list[bool]] = []
    places = np.full((layers + 1, layers + 1), -1, dtype=np.int64)
    longest = min(most, layers - stages + 1)
    for length in range(1, longest + 1):
        for start in range(layers - length + 1):
            at = seen.setdefault(order[start : start + length], len(seen))
            if at == len(starts_at):
                starts_at.append(start)
                kinds_valid.append([False, False, False])
            first, last = start == 0, start + length == layers
            flags = kinds_valid[at]
            flags[0], flags[1], flags[2] = flags[0] or first, flags[1] or not (first or last), flags[2] or last
            places[start, start + length] = at
    places[places < 0] = len(seen)
    size = np.array([len(key) for key in seen])
    steps = np.minimum(np.arange(longest + 1), size[:, None])
    begin = np.array(starts_at)
    table = (prefix[begin[:, None] + steps] - prefix[begin][:, None]).astype(float)
    valid = np.array(kinds_valid, dtype=bool).T[[0, *[1] * (stages - 2), 2]]
    return Windows(
        counts=np.broadcast_to(table[:, -1], (stages, len(seen), kinds)),
        length=np.broadcast_to(size.astype(float), (stages, len(size))),
        valid=valid,
        prefix=np.broadcast_to(table, (stages, *table.shape)),
        places=places,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Integer coefficients of n rows of one shape. S stages, I instants, J kinds, R modes.

    P is 1 where all stages live in one pool, else S.
    """

    shape: Shape
    memory: StageMemory
    time: StageTimes
    micro_batches: IntArray  # (n,)
    ranks_per_stage: IntArray  # (n,)
    nodes: tuple[tuple[int, int], ...]
    """Stages of each run of stages in one pool, and the devices of its nodes."""
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

        loads = node_loads(int(self.ranks_per_stage[i]), self.nodes)
        first = np.argmax(loads > 0, axis=1)
        by_stage = functools.partial(_by_stage, shape.stages)
        return Row(
            stages=shape.stages,
            virtual=shape.virtual,
            micro_batches=int(self.micro_batches[i]),
            order=shape.order,
            even=shape.even or (shape.virtual > 1 and shape.given is None),
            given=shape.given,
            mixed=shape.mixed,
            recompute=shape.recompute,
            offload=shape.offload,
            offloads=shape.offloads,
            needs_full=shape.needs_full,
            constant=ints(mem.constant[i]),
            layer=ints(mem.layer[i]),
            working=ints(mem.working[i]),
            selector=ints(mem.selector),
            offload_saving=ints(by_stage(mem.offload_saving[i])),
            capacity=ints(by_stage(mem.capacity[i])),
            host_constant=ints(mem.host_constant[i]),
            host_layer=ints(by_stage(mem.host_layer[i])),
            host_capacity=ints(by_stage(mem.host_capacity[i])[first]),
            node_loads=ints(loads),
            time_layer=ints(by_stage(time.layer[i])),
            time_stage=ints(time.stage[i]),
            tail_stage=ints(time.stage_tail[i]),
            tail_layer=ints(by_stage(time.layer_tail[i])),
            tail_offload=ints(by_stage(time.layer_offload[i])),
            fixed=int(time.fixed[i]),
            max_time=None if np.isinf(self.max_time[i]) else int(self.max_time[i]),
        )


def _by_stage(stages: int, values: FloatArray) -> FloatArray:
    """Values of one row by stage, where one pool has the same for all. (P, ...) -> (S, ...)"""
    return np.broadcast_to(values, (stages, *values.shape[1:]))


def is_free(shape: Shape) -> bool:
    """Whether every stage chooses its own recomputation."""
    return shape.recompute == FREE or (shape.stages == 1 and shape.virtual == 1)
