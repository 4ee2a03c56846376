"""Groups: rows of equal shape. What each stage costs is worked out only for rows that a bound or a model asks for."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from cost_models.arrays import FloatArray, IntArray
from cost_models.placement import Placement
from cost_models.schedule import spread
from solver.bounds.batch import Batch, Shape
from solver.instants import at_ends, binding_instants
from solver.layout import Row, stage_order
from solver.placed import Memories, communication, memory_by_stage, nodes, placement, times_by_stage
from solver.problem import Problem
from solver.rounding import MEMORY_UNIT, check_exact
from solver.rows import Rows
from solver.simplicity import simplicity

SMALL = 1000
"""Stages of all rows of a group up to which taking rows costs more than working them out."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Rows of equal shape, with their coefficients by stage class."""

    problem: Problem
    shape: Shape
    rows: Rows
    memory: Memories
    max_time: FloatArray
    """Side constraint on v times the step. (n,)"""
    least: FloatArray
    """Least peak of each row, before rounding. [bytes]"""
    simplicity: IntArray

    def __len__(self) -> int:
        """Rows."""
        return len(self.rows)

    @property
    def placement(self) -> Placement:
        """Pool of each stage."""
        return placement(self.problem, self.shape.stages)

    @property
    def room(self) -> FloatArray:
        """What the device leaves beside the least peak; the order in which feasibility is tried. [bytes]"""
        least: FloatArray = np.minimum.reduce([table.capacity for table in self.memory.values()])
        return least - self.least

    @cached_property
    def binding(self) -> Memories:
        """Memory at the instants that can bind; most groups are beaten before anyone asks.

        Raises:
            BrokenRule: sizes or times beyond what whole numbers hold.
        """
        stages, s = self.shape.stages, self.rows.strategy
        steps, chunks = np.asarray(s.gradient_accumulation_steps), np.asarray(s.virtual_pipeline_stages)
        ends = [
            at_ends(table, stages=stages, virtual=chunks, micro_batches=steps, layers=self.shape.num_layers)
            for table in self.memory.values()
        ]
        for held, time in itertools.product(ends, self.rows.time.values()):
            check_exact(held, time, layers=self.shape.num_layers, steps=steps * chunks)
        kept = binding_instants(ends)
        return {pool: table.at_instants(kept) for pool, table in self.memory.items()}

    @property
    def instants(self) -> int:
        """How many instants can bind."""
        return len(next(iter(self.binding.values())).selector)

    def take(self, index: Any) -> "Group":
        """Some of the rows."""
        return replace(
            self,
            rows=self.rows.take(index),
            memory={pool: table.take(index) for pool, table in self.memory.items()},
            max_time=self.max_time[index],
            least=self.least[index],
            simplicity=self.simplicity[index],
        )

    def batch(self, index: Any) -> Batch:
        """Integer coefficients by stage of some rows; of a small group they are worked out once for all."""
        small = len(self) * self.shape.stages <= SMALL
        return self._whole.take(index) if small else self._worked_out(index)

    @cached_property
    def _whole(self) -> Batch:
        return self._worked_out(slice(None))

    def _worked_out(self, index: Any) -> Batch:
        problem, shape, s = self.problem, self.shape, self.rows.strategy.take(index)
        steps = np.asarray(s.gradient_accumulation_steps)
        return Batch(
            shape=shape,
            memory=memory_by_stage(
                problem,
                {pool: table.take(index) for pool, table in self.binding.items()},
                stages=shape.stages,
                virtual=np.asarray(s.virtual_pipeline_stages),
                micro_batches=steps,
            ),
            time=times_by_stage(
                problem, {view: time.take(index) for view, time in self.rows.time.items()}, shape.stages
            ),
            micro_batches=steps,
            ranks_per_stage=np.asarray(s.tensor_parallel * s.context_parallel * s.data_parallel),
            nodes=nodes(problem, shape.stages),
            max_time=self.max_time[index],
        )

    def row(self, index: int) -> Row:
        """One row for the inner model."""
        return self.limited(self.batch([index]).row(0), index)

    def limited(self, row: Row, index: int) -> Row:
        """A row with what the problem asks of its communication."""
        if self.problem.limits.max_communication_fraction is None:
            return row
        assert self.rows.communication is not None, "rows of a limit on communication are priced in it"
        told = {view: time.take([index]) for view, time in self.rows.communication.items()}
        limit = communication(self.problem, told, self.rows.strategy.take([index]), self.shape.stages)
        return replace(row, communication=limit)

    def within(self, most: int) -> "Group":
        """The group where no rank may allocate more than so many KiB."""
        held = {
            pool: replace(table, capacity=np.minimum(table.capacity, most * MEMORY_UNIT))
            for pool, table in self.memory.items()
        }
        return replace(self, memory=held)


def grouped(problem: Problem, rows: Rows, memory: Memories, max_time: FloatArray, least: FloatArray) -> Iterator[Group]:
    """Groups of rows of equal shape."""
    shapes, which, sizes = np.unique(_shape_keys(rows), return_inverse=True, return_counts=True)
    order = np.argsort(which, kind="stable")
    # Together once, so that each group is a slice.
    rows, max_time, least = rows.take(order), max_time[order], least[order]
    memory, simple = {pool: table.take(order) for pool, table in memory.items()}, simplicity(rows.strategy)
    stop = 0
    for key, size in zip(shapes.tolist(), sizes.tolist(), strict=True):
        start, stop = stop, stop + size
        at = slice(start, stop)
        mine = {pool: table.take(at) for pool, table in memory.items()}
        yield Group(
            problem=problem,
            shape=_shape(problem, key),
            rows=rows.take(at),
            memory=mine,
            max_time=max_time[at],
            least=least[at],
            simplicity=simple[at],
        )


_RADIX: Final = (1 << 20, 1 << 10, 2, 2, 2, 8, 8, 2, 2)
"""More than the values of each part of a shape, in the order of `_shape_keys`."""


def _shape_keys(rows: Rows) -> IntArray:
    """One number for the shape of each row; shapes ascend with it. (n,)"""
    s, abilities, offloads = rows.strategy, rows.abilities, rows.offloads
    columns = (
        np.asarray(s.pipeline_parallel),
        np.asarray(s.virtual_pipeline_stages),
        abilities["even"] | (np.asarray(s.pipeline_parallel) == 1),
        abilities["spread"],
        abilities["mixed"],
        abilities["recompute"],
        np.where(offloads, abilities["offload"], 0),
        offloads,
        np.asarray(s.recompute_interval) > 1,
    )
    key = np.zeros(len(rows), dtype=np.int64)
    for column, radix in zip(columns, _RADIX, strict=True):
        key = key * radix + column
    return key


def _shape(problem: Problem, key: int) -> Shape:
    """The shape of a key."""
    parts = []
    for radix in reversed(_RADIX):
        key, part = divmod(key, radix)
        parts.append(part)
    stages, virtual, even, uneven, mixed, recompute, offload, offloads, interval = reversed(parts)
    model = problem.job.model
    return Shape(
        stages=stages,
        virtual=virtual,
        order=stage_order(model, stages, virtual),
        kinds=len(model.layer_kinds),
        even=bool(even),
        given=spread(model.num_hidden_layers, stages, virtual) if uneven else None,
        mixed=bool(mixed),
        recompute=recompute,
        offload=offload,
        offloads=bool(offloads),
        needs_full=bool(interval),
    )
