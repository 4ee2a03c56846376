"""What the stages of rows cost where they live: one pool for all, or the pools of an arrangement.

Rows are priced once for every view that a stage may have (its pool, and what carries its transfers), and once for every
pool in memory; the coefficients of each stage are then taken from its own view and pool.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from cost_models.arrays import FloatArray, IntArray
from cost_models.calibration import Calibration
from cost_models.job import Job
from cost_models.placement import Placement, View, in_pool, seen
from cost_models.strategy import Strategy
from cost_models.table import MemoryTable, TimeTable
from solver.bounds.first import first_bound, least_flight, placed_bound
from solver.communication import Communication
from solver.problem import PARTS, Problem
from solver.rounding import (
    IntegerTime,
    StageMemory,
    StageTimes,
    integer_time,
    placed,
    rounding_ticks,
    stage_classes,
    stage_memory,
    stage_times,
)

ONE_POOL: Final[View] = (0, None, None)
Times = Mapping[View, IntegerTime]
Memories = Mapping[int, MemoryTable]
"""By pool."""


def priced_times(
    problem: Problem, price: Callable[[Job, Strategy, Calibration], TimeTable], strategy: Strategy
) -> Times:
    """Time of all rows as if every stage had the view, for every view that occurs."""
    if problem.arrangement is None:
        return {ONE_POOL: integer_time(price(problem.job, strategy, problem.calibration))}
    stages = np.unique(np.asarray(strategy.pipeline_parallel)).tolist()
    found = dict.fromkeys(view for n in stages for view in _views(problem, int(n)))
    return {view: integer_time(price(seen(problem.job, view), strategy, problem.calibration)) for view in found}


def priced_memories(
    problem: Problem, price: Callable[[Job, Strategy, Calibration, float], MemoryTable], strategy: Strategy
) -> Memories:
    """Memory of all rows as if every stage lived in the pool, for every pool in use."""
    if problem.arrangement is None:
        return {0: price(problem.job, strategy, problem.calibration, problem.oom_risk)}
    return {
        pool: price(in_pool(problem.job, pool), strategy, problem.calibration, problem.oom_risk)
        for pool in problem.arrangement.pools
    }


def _views(problem: Problem, stages: int) -> tuple[View, ...]:
    if problem.arrangement is None:
        return (ONE_POOL,) * stages
    return problem.arrangement.views(problem.job.cluster, stages)


def placement(problem: Problem, stages: int) -> Placement:
    """The pool of each stage."""
    return (0,) * stages if problem.arrangement is None else problem.arrangement.placement(stages)


def nodes(problem: Problem, stages: int) -> tuple[tuple[int, int], ...]:
    """Stages of each run of stages in one pool, and the devices of its nodes."""
    if problem.arrangement is None:
        return ((stages, problem.job.pool.gpus_per_node),)
    return problem.arrangement.nodes(problem.job.cluster, stages)


def times_by_stage(problem: Problem, times: Times, stages: int) -> StageTimes:
    """Time coefficients of each stage of rows with so many stages."""
    views = _views(problem, stages)
    known = {view: stage_times(times[view], stages) for view in dict.fromkeys(views)}
    if len(known) == 1:
        return known[views[0]]
    order = list(known)
    return placed(list(known.values()), [order.index(view) for view in views])


def memory_by_stage(
    problem: Problem, memories: Memories, *, stages: int, virtual: IntArray, micro_batches: IntArray
) -> StageMemory:
    """Memory coefficients of each stage of rows with so many stages."""
    at = placement(problem, stages)
    order = list(dict.fromkeys(at))
    parts = [
        stage_memory(
            memories[pool],
            stages=stages,
            virtual=virtual,
            micro_batches=micro_batches,
            layers=problem.job.model.num_hidden_layers,
        )
        for pool in order
    ]
    return parts[0] if len(parts) == 1 else placed(parts, [order.index(pool) for pool in at])


def fits_together(
    problem: Problem, memories: Memories, strategy: Strategy, layers: FloatArray, offloads: np.ndarray
) -> np.ndarray:
    """Rows whose stages, each in its pool, have room together for what they hold at the least. (n,)

    Every layer in its leanest mode in the pool where it is smallest, and with the fewest micro-batches in flight.
    """
    fits = np.ones(len(strategy), dtype=bool)
    pipeline = np.atleast_1d(np.asarray(strategy.pipeline_parallel))
    for stages in np.unique(pipeline).tolist():
        at = np.nonzero(pipeline == stages)[0]
        mine, placed_at = strategy.take(at), list(placement(problem, int(stages)))
        tables = {pool: memories[pool].take(at) for pool in dict.fromkeys(placed_at)}
        flight = least_flight(next(iter(tables.values())), mine, np.full(len(at), stages - 1))
        saved = offloads[at][:, None, None]
        least = np.minimum.reduce(
            [
                np.swapaxes(t.layer, 1, 2) + flight[:, :, None] * t.activation.min(axis=2)[:, None]
                - saved * t.offload_saving[:, None]
                for t in tables.values()
            ]
        )  # fmt: skip
        total = least @ layers
        for (pool, of_class), count in Counter(
            zip(placed_at, stage_classes(int(stages)).tolist(), strict=True)
        ).items():
            table = tables[pool]
            held = table.constant[:, of_class] + table.working[:, of_class].min(axis=2)
            held = held + flight * table.stage_activation[:, of_class][:, None] - table.capacity[:, None]
            total = total + count * held
        fits[at] = (total <= 0).all(axis=1)
    return fits


def lower_bounds(
    problem: Problem,
    times: Times,
    strategy: Strategy,
    layers: FloatArray,
    fixed: np.ndarray,
    offloads: np.ndarray,
    *,
    tail: bool = True,
) -> FloatArray:
    """First bound on v times the step of every row. (n,) [ticks]"""
    if len(times) == 1:
        (time,) = times.values()
        return first_bound(time, strategy, layers, fixed, offloads, tail=tail)
    bound = np.zeros(len(strategy))
    pipeline = np.atleast_1d(np.asarray(strategy.pipeline_parallel))
    for stages in np.unique(pipeline).tolist():
        at = np.nonzero(pipeline == stages)[0]
        mine = times_by_stage(problem, {view: time.take(at) for view, time in times.items()}, int(stages))
        bound[at] = placed_bound(mine, strategy.take(at), layers, fixed[at], offloads[at], tail=tail)
    return bound


def communication_times(problem: Problem, strategy: Strategy) -> Times | None:
    """What of the time of all rows is communication, where the problem limits that."""
    if problem.limits.max_communication_fraction is None:
        return None
    from cost_models.time import communication_table  # noqa: PLC0415  only where it is limited

    return priced_times(problem, communication_table, strategy)


def communication(problem: Problem, told: Times, one: Strategy, stages: int) -> Communication:
    """The limit on the communication of a row; `told` and `one` are columns of one row."""
    limit = problem.limits.max_communication_fraction
    assert limit is not None, "communication is priced where it is limited"
    times = times_by_stage(problem, told, stages)
    virtual, steps = (int(np.ravel(n)[0]) for n in (one.virtual_pipeline_stages, one.gradient_accumulation_steps))
    slack = rounding_ticks(
        stages=stages, virtual=virtual, micro_batches=steps, layers=problem.job.model.num_hidden_layers
    )

    def by_stage(values: FloatArray) -> Any:
        return _ints(np.broadcast_to(values[0], (stages, *values.shape[2:])))

    return Communication(
        layer=by_stage(times.layer),
        stage=by_stage(times.stage),
        tail_layer=by_stage(times.layer_tail),
        tail_stage=by_stage(times.stage_tail),
        fixed=int(times.fixed[0]),
        most=int(limit * PARTS),
        rounding=int(virtual * slack) + 1,
    )


def _ints(array: Any) -> Any:
    return tuple(_ints(x) for x in array) if np.ndim(array) else int(array)
