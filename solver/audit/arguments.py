"""The arguments: for every legal row, why it has no configuration within the limits of a question.

Arguments are tried from the cheapest to the strongest: the same claim gets the same argument for the same row.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import numpy as np

from cost_models.arrays import FloatArray, IntArray
from cost_models.schedule import spread
from cost_models.specs.choices import RECOMPUTES, Backend
from cost_models.strategy import Strategy
from cost_models.time import communication_table
from solver.audit.claim import Question
from solver.audit.grid import UNIT, MemoryGrid, TimeGrid, kind_order
from solver.audit.paths import Layout, Unsettled, find
from solver.audit.pools import memory_of, patterns, ranks_of_a_node, time_of
from solver.audit.relaxation import Setting, host_floor, memory_floor, time_floor
from solver.audit.row import Abilities, AuditRow, Share
from solver.audit.space import Spaces
from solver.caps import Caps, caps
from solver.legality import job_facts, layout_codes
from solver.problem import PARTS, Problem

ARGUMENTS: Final = ("", "limits", "layers", "time", "memory", "host_memory", "layouts", "model")
"""Index 0 is an open row. limits: its degrees alone miss the limits. layers: stages must be even and cannot be.
time: too slow in its fastest mode without a look at memory. memory, host_memory: too large in its leanest mode without
a look at time. layouts: no layout meets both, by exact search. model: none does, by CP-SAT on the row's model."""
OPEN, LIMITS, LAYERS, TIME, MEMORY, HOST, LAYOUTS, MODEL = range(len(ARGUMENTS))
_CHUNK = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One row that only a look at its layouts settles."""

    backend: Backend
    index: int
    strategy: Strategy
    row: AuditRow
    most_time: float
    most_peak: float
    floor: float
    """Of its time. [ticks]"""
    layout: Layout | None
    """That contradicts the claim."""


@dataclass(slots=True, kw_only=True)
class Discarded:
    """Rows of a back end under one question."""

    backend: Backend
    rows: Strategy
    argument: IntArray
    """Index of ARGUMENTS for every row."""
    floor: FloatArray
    """What the argument rests on: least v times the step [ticks] or least peak [KiB]; 0 where it needs no number."""
    limit: FloatArray
    """What the floor exceeds."""
    looked_at: list[Asked]


def discard(problem: Problem, question: Question, spaces: Spaces) -> Iterator[Discarded]:
    """Every legal row with its argument, back end by back end."""
    limit = caps(problem)
    for backend, rows in spaces.items():
        if len(rows):
            yield _discarded(problem, question, limit, backend, rows)


def _discarded(problem: Problem, question: Question, limit: Caps, backend: Backend, rows: Strategy) -> Discarded:
    n, layers = len(rows), problem.job.model.num_hidden_layers
    most_time, most_peak = question.limits(rows, limit)
    out = Discarded(
        backend=backend,
        rows=rows,
        argument=np.full(n, OPEN, dtype=np.uint8),
        floor=np.zeros(n),
        limit=np.zeros(n),
        looked_at=[],
    )
    codes = _codes(problem, backend, rows)
    out.argument[codes["even"] & (layers % np.asarray(rows.pipeline_parallel) != 0)] = LAYERS
    out.argument[(most_time < 0) & (out.argument == OPEN)] = LIMITS
    shapes = np.stack([rows.pipeline_parallel, rows.virtual_pipeline_stages], axis=1)
    for stages, virtual in np.unique(shapes, axis=0).tolist():
        same = np.nonzero((shapes == (stages, virtual)).all(axis=1) & (out.argument == OPEN))[0]
        for start in range(0, len(same), _CHUNK):
            at = same[start : start + _CHUNK]
            _Chunk(problem, limit, out, codes, stages, virtual).argue(at, most_time[at], most_peak[at])
    return out


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Rows of equal shape."""

    problem: Problem
    limit: Caps
    out: Discarded
    codes: dict[str, Any]
    stages: int
    virtual: int

    def argue(self, at: IntArray, most_time: FloatArray, most_peak: FloatArray) -> None:
        """Time first, as its table is the cheaper one; memory for what is left; then layouts."""
        out = self.out
        strategy = out.rows.take(at)
        time = time_of(self.problem, strategy, self.stages)
        floor = time_floor(time, self._setting(strategy, at))
        left = self._note(at, TIME, floor > most_time, floor, most_time)
        if not left.any():
            return
        at, strategy, time, floor = at[left], strategy.take(left), time.take(left), floor[left]
        most_time, most_peak = most_time[left], most_peak[left]
        memory = _limited(memory_of(self.problem, strategy, self.stages, self.virtual), self.limit)
        room = np.minimum(memory.capacity.max(axis=1), most_peak)
        need = memory_floor(memory, self._setting(strategy, at))
        host = host_floor(memory, ranks_of_a_node(self.problem, np.asarray(strategy.world_size)))
        rooms = memory.host_capacity.max(axis=1)
        left = self._note(at, MEMORY, need > room, need, room)
        left &= self._note(at, HOST, (host > rooms) & left, host, rooms)
        for k in np.nonzero(left)[0]:
            self._look(
                int(at[k]), strategy.row(int(k)), time.take([k]), memory.take([k]), (most_time[k], room[k]), floor[k]
            )

    def _setting(self, strategy: Strategy, at: IntArray) -> Setting:
        kinds = len(self.problem.job.model.layer_kinds)
        order = kind_order(self.problem.job.model, self.stages, self.virtual)
        return Setting(
            counts=np.bincount(order, minlength=kinds).astype(float),
            even=self.codes["even"][at] | (self.stages == 1),
            offloads=np.asarray(strategy.optimizer_offload) > 0,
            virtual=self.virtual,
            steps=np.asarray(strategy.gradient_accumulation_steps),
            modes=tuple(i for i, mode in enumerate(RECOMPUTES) if mode in self.limit.modes),
        )

    def _note(self, at: IntArray, argument: int, holds: Any, floor: FloatArray, limit: FloatArray) -> Any:
        """Record an argument where it holds; what is left."""
        self.out.argument[at[holds]] = argument
        self.out.floor[at[holds]], self.out.limit[at[holds]] = floor[holds], limit[holds]
        return ~holds

    def _look(
        self,
        index: int,
        strategy: Strategy,
        time: TimeGrid,
        memory: MemoryGrid,
        limits: tuple[float, float],
        floor: float,
    ) -> None:
        """The last argument: an exact search through the row's layouts."""
        row = _audit_row(self.problem, self.limit, self.codes, index, strategy, time, memory)
        layout: Layout | None = None
        try:
            layout = find(row, *limits)
            if layout is not None and not row.shares(layout):
                layout = None  # of the layouts within the other limits CP-SAT looks for one that keeps this one too
            else:
                self.out.argument[index] = OPEN if layout is not None else LAYOUTS
        except Unsettled:
            pass
        self.out.floor[index], self.out.limit[index] = floor, limits[0]
        self.out.looked_at.append(
            Asked(
                backend=self.out.backend,
                index=index,
                strategy=strategy,
                row=row,
                most_time=limits[0],
                most_peak=limits[1],
                floor=floor,
                layout=layout,
            )
        )


def _limited(memory: MemoryGrid, limit: Caps) -> MemoryGrid:
    """Memory with what the request leaves of devices and nodes; a row that cannot be loaded on a node fits nowhere."""
    if limit.max_memory_bytes is not None:
        memory = replace(memory, capacity=np.minimum(memory.capacity, limit.max_memory_bytes // UNIT))
    if limit.max_host_memory_bytes is not None:
        room = limit.max_host_memory_bytes // UNIT
        left = np.where((memory.host_loading > room)[:, None], -1.0, np.minimum(memory.host_capacity, room))
        memory = replace(memory, host_capacity=left)
    return memory


def _codes(problem: Problem, backend: Backend, rows: Strategy) -> dict[str, Any]:
    """What the back end can lay out in each row."""
    facts = {**job_facts(problem.job, problem.pools), **{f.name: getattr(rows, f.name) for f in fields(Strategy)}}
    return layout_codes(backend, facts, len(rows))


def _audit_row(
    problem: Problem,
    limit: Caps,
    codes: dict[str, Any],
    index: int,
    strategy: Strategy,
    time: TimeGrid,
    memory: MemoryGrid,
) -> AuditRow:
    stages, virtual = int(strategy.pipeline_parallel), int(strategy.virtual_pipeline_stages)
    ranks = int(strategy.tensor_parallel * strategy.context_parallel * strategy.data_parallel)
    loads = patterns(problem, ranks, stages)
    return AuditRow(
        time=time,
        memory=memory,
        steps=int(strategy.gradient_accumulation_steps),
        virtual=virtual,
        order=kind_order(problem.job.model, stages, virtual),
        can=Abilities(
            even=bool(codes["even"][index]),
            given=spread(problem.job.model.num_hidden_layers, stages, virtual) if codes["spread"][index] else None,
            mixed=bool(codes["mixed"][index]),
            recompute=int(codes["recompute"][index]),
            offload=int(codes["offload"][index]),
            offloads=bool(strategy.optimizer_offload),
            needs_full=int(strategy.recompute_interval) > 1,
            modes=tuple(mode in limit.modes for mode in RECOMPUTES),  # type: ignore[arg-type]
        ),
        patterns=loads,
        host_rooms=memory.host_capacity[0, np.argmax(loads > 0, axis=1)],
        share=_share(problem, strategy, stages, virtual),
    )


def _share(problem: Problem, strategy: Strategy, stages: int, virtual: int) -> Share | None:
    """The limit on communication, of one row."""
    most = problem.limits.max_communication_fraction
    if most is None:
        return None
    one = Strategy(**{f.name: np.array([getattr(strategy, f.name)]) for f in fields(Strategy)})
    time = time_of(problem, one, stages, communication_table)
    layers, steps = problem.job.model.num_hidden_layers, int(strategy.gradient_accumulation_steps)
    ticks = (steps - 1 / virtual) * (layers + 1) + (layers + stages) / virtual + 2 * layers + 2
    return Share(time=time, most=int(most * PARTS), rounding=int(virtual * ticks) + 1)


def claimed_row(problem: Problem, backend: Backend, index: int, spaces: Spaces) -> Asked:
    """One legal row by its place, within the limits of the problem alone."""
    limit = caps(problem)
    strategy = spaces[backend].take([index])
    codes, one = _codes(problem, backend, strategy), strategy.row(0)
    stages, virtual = int(one.pipeline_parallel), int(one.virtual_pipeline_stages)
    time = time_of(problem, strategy, stages)
    memory = _limited(memory_of(problem, strategy, stages, virtual), limit)
    return Asked(
        backend=backend,
        index=index,
        strategy=one,
        row=_audit_row(problem, limit, codes, 0, one, time, memory),
        most_time=float(limit.max_times(strategy)[0]),
        most_peak=np.inf,
        floor=0.0,
        layout=None,
    )
