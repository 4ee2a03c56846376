"""Several pools: every arrangement of them, enumerated anew, and what a row costs where an arrangement puts its stages.

The definition (docs/pools.md): a pool gives any number of devices within a node or whole nodes, down to none; the pools
in use follow each other along the pipeline in any order; a stage lives wholly in one pool. Without an arrangement the
functions of this file are those of the one pool.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any, Final, TypeVar

import numpy as np

from cost_models.arrays import FloatArray, IntArray
from cost_models.memory import memory_table
from cost_models.placement import in_pool, placement_of, seen, views
from cost_models.specs.choices import BACKENDS, PRECISIONS
from cost_models.specs.cluster import NodePool
from cost_models.specs.configuration import Configuration
from cost_models.strategy import Strategy
from cost_models.table import TimeTable
from cost_models.time import time_table
from solver.arrangement import Arrangement
from solver.audit.grid import TICK, MemoryGrid, TimeGrid, memory_grid, node_patterns, time_grid
from solver.audit.space import one_rank
from solver.problem import Problem

Grid = TypeVar("Grid", TimeGrid, MemoryGrid)
MOST: Final = 10_000
"""Arrangements beyond which pools give whole nodes, or else all or nothing."""
MANY: Final = 2**20
"""Sequences of a micro-batch in which what does not grow with them does not count."""


def arrangements(problem: Problem) -> tuple[Arrangement, ...]:
    """All that are on offer, in the order of ties: by the devices of each pool, then by the order of the pools."""
    pools, limits = problem.job.cluster.pools, problem.limits
    low, high = limits.min_gpus or 1, limits.max_gpus or problem.job.cluster.gpus
    stated = problem.domains.values.get("gpus")
    wishes = [wish for wish in problem.requirements if wish.key == "gpus"]
    found = [Arrangement(turn, parts) for turn, parts in enumerate(_every(pools, problem.objectives[0] == "memory"))]
    return tuple(
        one
        for one in found
        if low <= (n := sum(count for _, count in one.parts)) <= high
        and (stated is None or n in stated)
        and all(wish.admits(n) for wish in wishes)
    )


def _every(pools: Sequence[NodePool], whole: bool) -> list[tuple[tuple[int, int], ...]]:
    nodes = [range(1, pool.nodes + 1) for pool in pools]
    offers = [
        [[*range(1, p.gpus_per_node), *(k * p.gpus_per_node for k in n)] for p, n in zip(pools, nodes, strict=True)],
        [[k * p.gpus_per_node for k in n] for p, n in zip(pools, nodes, strict=True)],
        [[p.gpus] for p in pools],
    ]
    offered = offers[2] if whole else next((o for o in offers if _number(o) <= MOST), offers[2])
    orders = [o for k in range(1, len(pools) + 1) for o in itertools.permutations(range(len(pools)), k)]
    found = [
        tuple(zip(order, counts, strict=True))
        for order in orders
        for counts in itertools.product(*(offered[pool] for pool in order))
    ]
    return sorted(found, key=lambda parts: ([dict(parts).get(k, 0) for k in range(len(pools))], [k for k, _ in parts]))


def _number(offered: Sequence[Sequence[int]]) -> int:
    """How many arrangements: for every set of pools in use its orders times the counts of each."""
    ways = np.array([1])
    for counts in offered:
        ways = np.convolve(ways, [1, len(counts)])
    factorial, total = 1, 0
    for k, number in enumerate(ways[1:].tolist(), 1):
        factorial *= k
        total += factorial * number
    return total


def arranged(problem: Problem, configuration: Configuration) -> Problem | None:
    """The problem with the pools as a configuration uses them; None where that is no arrangement on offer."""
    if len(problem.job.cluster.pools) == 1:
        return problem
    stages = [(pool, len(list(run))) for pool, run in itertools.groupby(placement_of(configuration))]
    ranks = configuration.world_size // configuration.pipeline_parallel
    parts = tuple((pool, count * ranks) for pool, count in stages)
    same = (one for one in arrangements(problem) if one.parts == parts)
    found = next(same, None)
    return None if found is None else replace(problem, arrangement=found)


def _placement(problem: Problem, stages: int) -> tuple[int, ...]:
    if problem.arrangement is None:
        return (0,) * stages
    parts = problem.arrangement.parts
    ranks = sum(count for _, count in parts) // stages
    return tuple(pool for pool, count in parts for _ in range(count // ranks))


def time_of(
    problem: Problem, strategy: Strategy, stages: int, price: Callable[..., TimeTable] = time_table
) -> TimeGrid:
    """Ticks of rows with `stages` stages, each of them as its pool and the networks beside it make it."""
    each = views(problem.job.cluster, _placement(problem, stages))
    grids = {
        view: time_grid(price(seen(problem.job, view), strategy, problem.calibration), stages)
        for view in dict.fromkeys(each)
    }
    found = _by_stage(TimeGrid, [grids[view] for view in each])
    return replace(found, fixed=np.max([grid.fixed for grid in grids.values()], axis=0))


def memory_of(problem: Problem, strategy: Strategy, stages: int, virtual: int) -> MemoryGrid:
    """KiB of the same rows, each stage with its pool's devices and nodes."""
    at, steps = _placement(problem, stages), np.asarray(strategy.gradient_accumulation_steps)
    layers, grids = problem.job.model.num_hidden_layers, {}
    for pool in dict.fromkeys(at):
        table = memory_table(in_pool(problem.job, pool), strategy, problem.calibration, oom_risk=problem.oom_risk)
        grids[pool] = memory_grid(table, stages, virtual, steps, layers)
    found = _by_stage(MemoryGrid, [grids[pool] for pool in at])
    return replace(found, host_loading=np.max([grid.host_loading for grid in grids.values()], axis=0))


def _by_stage(kind: type[Grid], grids: list[Grid]) -> Grid:
    """Stage s of grid s; what rows or instants have but once is that of the first."""

    def column(name: str) -> FloatArray:
        values = [getattr(grid, name) for grid in grids]
        if np.ndim(values[0]) < 2:
            first: FloatArray = values[0]
            return first
        return np.stack([value[:, s] for s, value in enumerate(values)], axis=1)

    columns: dict[str, Any] = {f.name: column(f.name) for f in fields(kind)}
    return kind(**columns)


def patterns(problem: Problem, ranks_per_stage: int, stages: int) -> IntArray:
    """How many ranks of each stage a node hosts, for every different node; every pool has its own nodes. (P, S)"""
    found = []
    for pool, run in itertools.groupby(enumerate(_placement(problem, stages)), key=lambda entry: entry[1]):
        at = [stage for stage, _ in run]
        of_pool = node_patterns(ranks_per_stage, len(at), problem.job.cluster.pools[pool].gpus_per_node)
        wide = np.zeros((len(of_pool), stages), dtype=np.int64)
        wide[:, at] = of_pool
        found.append(wide)
    return np.concatenate(found)


def ranks_of_a_node(problem: Problem, world_size: IntArray) -> IntArray:
    """Ranks that some node in use hosts at the least. (n,)"""
    pools = problem.job.cluster.pools
    if problem.arrangement is None:
        return np.minimum(world_size, pools[0].gpus_per_node)
    least = min(min(count, pools[pool].gpus_per_node) for pool, count in problem.arrangement.parts)
    return np.full(len(world_size), least)


def device_seconds(problem: Problem, pool: int) -> float:
    """Time that the layers of one sequence take one device of a pool at the least.

    One rank computes them alone, without recomputation, in a micro-batch so large that nothing else counts: splitting
    them over ranks or micro-batches adds to it.
    """
    alone = replace(problem, arrangement=Arrangement(0, ((pool, 1),)))
    device, model = problem.job.cluster.pools[pool].device, problem.job.model
    kinds = np.array([model.layer_sequence.count(kind) for kind in model.layer_kinds])
    found = float("inf")
    for backend in problem.backends:
        rows = one_rank(alone, BACKENDS.index(backend), MANY)
        rows = rows.take(np.array([device.multiplies(name) for name in PRECISIONS])[np.asarray(rows.precision)])
        if len(rows):
            table = time_table(in_pool(problem.job, pool), rows, problem.calibration)
            found = min(found, float((table.layer.min(axis=2) @ kinds).min()) / MANY)
    return found


def floor_ticks(arrangement: Arrangement, seconds: Sequence[float]) -> float:
    r"""Time of one sequence with all devices computing all along: :math:`1 / \sum_k n_k / w_k`. [ticks]"""
    return 1 / sum(count / seconds[pool] for pool, count in arrangement.parts) / TICK * (1 - 1e-9)
