"""Rows on their way through the search: priced in time, then in memory and tested for it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from cost_models.arrays import FloatArray, IntArray
from cost_models.calibration import Calibration
from cost_models.job import Job
from cost_models.schedule import STAGE_CLASSES
from cost_models.specs.choices import RECOMPUTES
from cost_models.strategy import Strategy
from cost_models.table import MemoryTable, Table, TimeTable
from solver.bounds.communication import most_left
from solver.bounds.first import least_host, least_hosted, least_memory
from solver.caps import Caps
from solver.layout import ALL_OR_NONE, stage_order
from solver.legality import job_facts, layout_codes
from solver.placed import (
    Memories,
    Times,
    communication_times,
    fits_together,
    lower_bounds,
    priced_memories,
    priced_times,
)
from solver.problem import Pricing, Problem
from solver.space import BackendSpace, BoolArray, strategies

Key = tuple[int, int, int, int]
"""Row key: arrangement of pools, back end, topology, feature set, in the fixed order of the space."""
MEMORY_CHUNK = 20_000
"""Rows whose memory alone is priced at once: so many that calls do not count, and few beside what else is in memory."""


@dataclass(frozen=True, slots=True)
class Prices:
    """The two halves of pricing, so that rows beaten on time are never priced in memory."""

    time: Callable[[Job, Strategy, Calibration], TimeTable]
    micro_batch: Callable[[Job, Strategy, Calibration], TimeTable]
    """Without what comes after the last micro-batch, or with it where that is no less work."""
    memory: Callable[[Job, Strategy, Calibration, float], MemoryTable]


def prices(pricing: Pricing | None) -> Prices:
    """The halves of an injected pricing; of the cost models by default."""
    if pricing is None:
        from cost_models.memory import memory_table  # noqa: PLC0415  an injected pricing needs neither
        from cost_models.time import time_table  # noqa: PLC0415

        return Prices(
            time=time_table,
            micro_batch=partial(time_table, tail=False),
            memory=lambda job, strategy, calibration, risk: memory_table(job, strategy, calibration, oom_risk=risk),
        )

    def whole(job: Job, strategy: Strategy, calibration: Calibration, risk: float) -> Table:
        return pricing(job, strategy, calibration, oom_risk=risk)

    def time(job: Job, strategy: Strategy, calibration: Calibration) -> TimeTable:
        return whole(job, strategy, calibration, 0.01).time

    return Prices(
        time=time,
        micro_batch=time,
        memory=lambda job, strategy, calibration, risk: whole(job, strategy, calibration, risk).memory,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows priced in time."""

    space: IntArray
    """Index of each row's back end's space."""
    topology: IntArray
    feature: IntArray
    strategy: Strategy
    time: Times
    abilities: dict[str, Any]
    lower: FloatArray
    """First bound on v times the step."""
    communication: Times | None = None
    """What of the times is communication, where that is limited."""
    turn: int = 0
    """Place of their arrangement of pools among all."""

    def __len__(self) -> int:
        """Rows."""
        return len(self.topology)

    def key(self, index: int) -> Key:
        """Identity of a row, and its place in the fixed order of the space."""
        return self.turn, int(self.space[index]), int(self.topology[index]), int(self.feature[index])

    def take(self, index: Any) -> "Rows":
        """Some of the rows."""
        told = self.communication
        return Rows(
            space=self.space[index],
            topology=self.topology[index],
            feature=self.feature[index],
            strategy=self.strategy.take(index),
            time={view: time.take(index) for view, time in self.time.items()},
            abilities={k: a[index] for k, a in self.abilities.items()},
            lower=self.lower[index],
            communication=told and {view: time.take(index) for view, time in told.items()},
            turn=self.turn,
        )

    @property
    def fixed(self) -> BoolArray:
        """Rows whose stages are given equally many layers."""
        pp, v = np.asarray(self.strategy.pipeline_parallel), np.asarray(self.strategy.virtual_pipeline_stages)
        result: BoolArray = self.abilities["even"] | ((v > 1) & ~self.abilities["spread"]) | (pp == 1)
        return result

    @property
    def offloads(self) -> BoolArray:
        """Rows that offload optimizer states."""
        return np.asarray(self.strategy.optimizer_offload) > 0


def layer_counts(job: Job) -> FloatArray:
    """Layers of the model by kind."""
    order = stage_order(job.model, 1, 1)
    return np.bincount(np.array(order), minlength=len(job.model.layer_kinds)).astype(float)


def priced_rows(
    problem: Problem,
    prices_: Prices,
    spaces: Sequence[BackendSpace],
    space: IntArray,
    topology: IntArray,
    feature: IntArray,
) -> Rows:
    """Rows with integer times and first bounds.

    Rows come space by space: those of all back ends are priced in one pass of the formulas.
    """
    strategy = strategies(spaces, space, topology, feature)
    abilities = _abilities(problem, spaces, space, strategy)
    price = prices_.time if len(topology) else no_time
    rows = Rows(
        space=space,
        topology=topology,
        feature=feature,
        strategy=strategy,
        time=priced_times(problem, price, strategy),
        turn=0 if problem.arrangement is None else problem.arrangement.turn,
        abilities=abilities,
        lower=np.zeros(len(topology)),
    )
    counts = layer_counts(problem.job)
    return replace(rows, lower=lower_bounds(problem, rows.time, strategy, counts, rows.fixed, rows.offloads))


def _abilities(problem: Problem, spaces: Sequence[BackendSpace], space: IntArray, strategy: Strategy) -> dict[str, Any]:
    """Layout abilities of rows that come space by space."""
    parts = []
    for index, at in enumerate(spaces):
        mine = strategy.take(space == index)
        facts = {**job_facts(problem.job, problem.pools), **{f: getattr(mine, f) for f in Strategy.__slots__}}
        parts.append(layout_codes(at.backend, facts, len(mine)))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def no_time(job: Job, strategy: Strategy, calibration: Calibration) -> TimeTable:
    """A table of nothing: for no rows, which formulas are not asked for, and for questions of memory alone."""
    del calibration
    n, kinds = int(np.size(strategy.tensor_parallel)), len(job.model.layer_kinds)
    return TimeTable(
        layer=np.zeros((n, kinds, len(RECOMPUTES))),
        stage=np.zeros((n, len(STAGE_CLASSES))),
        layer_tail=np.zeros((n, kinds)),
        layer_offload=np.zeros((n, kinds)),
        stage_tail=np.zeros((n, len(STAGE_CLASSES))),
        fixed=np.zeros(n),
    )


def with_communication(problem: Problem, rows: Rows) -> Rows:
    """Rows with what of their times is communication, where that is limited."""
    return replace(rows, communication=communication_times(problem, rows.strategy))


def may_keep_share(problem: Problem, rows: Rows) -> BoolArray:
    """Rows of which some layout may keep the limit on communication. (n,)"""
    share, told = problem.limits.max_communication_fraction, rows.communication
    if share is None or told is None:
        return np.ones(len(rows), dtype=bool)
    views = [(time, told[view]) for view, time in rows.time.items()]
    result: BoolArray = most_left(views, rows.strategy, layer_counts(problem.job), share) >= 0
    return result


def with_memory(problem: Problem, prices_: Prices, rows: Rows, caps: Caps) -> tuple[Memories, FloatArray]:
    """Memory coefficients of rows under the caps, and their least peaks: 0 across pools. [bytes]"""
    every = priced_memories(problem, prices_.memory, rows.strategy)
    memory = {pool: caps.bounded(table) for pool, table in every.items()}
    if len(memory) > 1:
        return memory, np.zeros(len(rows))
    (table,) = memory.values()
    return memory, least_memory(table, rows.strategy, layer_counts(problem.job), rows.fixed, rows.offloads)


def may_fit(problem: Problem, rows: Rows, memory: Memories, least: FloatArray) -> BoolArray:
    """Rows whose least need a device and a node can hold; across pools, whose stages together have room for it."""
    if len(memory) > 1:
        return fits_together(problem, memory, rows.strategy, layer_counts(problem.job), rows.offloads)
    ((pool, table),) = memory.items()
    per_node = problem.job.cluster.pools[pool].gpus_per_node
    fits: BoolArray = least <= table.capacity
    if fits.any():
        held = table.take(fits)
        fits[fits] = host_need(problem, rows.take(fits), held, per_node) <= held.host_capacity
    return fits


def host_need(problem: Problem, rows: Rows, memory: MemoryTable, gpus_per_node: int) -> FloatArray:
    """Least host memory of the fullest node, for what the devices cannot keep or the back end offloads. (n,) [bytes]"""
    everything = rows.abilities["offload"] == ALL_OR_NONE
    hosted = least_hosted(memory, rows.strategy, layer_counts(problem.job), rows.offloads, everything)
    return least_host(memory, rows.strategy, gpus_per_node, hosted)
