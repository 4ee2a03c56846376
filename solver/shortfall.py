"""The least shortfall: how much more memory every device would need for some configuration to fit, proven least."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cost_models.arrays import FloatArray, IntArray
from cost_models.specs.configuration import Configuration
from cost_models.table import MemoryTable
from solver.bounds.first import least_beside_host, least_memory
from solver.bounds.peak import peak_bound
from solver.caps import Caps, caps
from solver.dominance import Pruning, reduced
from solver.groups import Group, grouped
from solver.inner import solve_row
from solver.part import with_parts
from solver.problem import Problem
from solver.rounding import MEMORY_UNIT
from solver.rows import Rows, host_need, layer_counts, no_time, priced_rows, prices
from solver.space import BackendSpace, every_topology, rows_of, spaces
from solver.verify import configuration

CHUNK = 400
"""Rows whose peak is bounded at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """What a configuration lacks."""

    missing_bytes: float
    """Of usable memory on every device at the asked risk; at most 0 where the configuration fits."""
    configuration: Configuration


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """A row, with the least that it can lack."""

    lower: float
    """[bytes]"""
    group: Group
    index: int
    capacity: float
    """Bytes that a rank may allocate."""
    margin: float
    """Usable bytes that one allocated byte takes."""

    def missing(self, peak: int) -> float:
        """What it lacks with a peak of so many KiB. [bytes]"""
        return self.margin * (peak * MEMORY_UNIT - self.capacity)

    def most(self, missing: float) -> int:
        """Largest peak that lacks less. [KiB]"""
        return int(-(-(missing / self.margin + self.capacity) // MEMORY_UNIT)) - 1


def least_shortfall(
    problem: Problem, *, host_memory: bool = True, leanest: bool = False, step: int = 1, pruning: Pruning = Pruning()
) -> Shortfall | None:
    """The configuration that lacks least, in whole steps of so many bytes; None when none is legal.

    With `host_memory` only configurations that the nodes can hold count, with `leanest` only those that need least of
    a node. Rows are taken by a lower bound, each solved exactly for its least peak, until no bound is lower.
    """
    best: Shortfall | None = None
    for floor, candidates in _candidates(problem, host_memory, leanest, pruning):
        for candidate in [None, *candidates]:
            lower = floor if candidate is None else candidate.lower
            if best is not None and lower >= less_than(best, step):
                break
            best = best if candidate is None else _solved(problem, candidate, best, step)
        else:
            continue
        break
    return best


def less_than(best: Shortfall, step: int) -> float:
    """What a configuration lacks at most whose shortfall is fewer whole steps, exclusive."""
    return best.missing_bytes if step == 1 else step * (-(-best.missing_bytes // step) - 1) + 1


def _solved(problem: Problem, candidate: _Candidate, best: Shortfall | None, step: int) -> Shortfall | None:
    """The better of what was known and of the row's least peak."""
    most = None if best is None else candidate.most(less_than(best, step))
    row, time = candidate.group.row(candidate.index), problem.budget.row_deterministic_time
    answer = solve_row(row, "memory", most=most, deterministic_time=time)
    if answer.cost is None or answer.layout is None:
        return best
    chosen = configuration(problem, candidate.group.rows.strategy.row(candidate.index), answer.layout)
    return Shortfall(missing_bytes=candidate.missing(answer.cost.memory), configuration=chosen)


def _candidates(
    problem: Problem, host_memory: bool, leanest: bool, pruning: Pruning
) -> Iterator[tuple[float, list[_Candidate]]]:
    """Rows in chunks by ascending floor of what they lack; within a chunk by ascending bound. [bytes]"""
    limit = replace(caps(problem), device_memory=False, host_memory=host_memory)
    limit = replace(limit, max_host_memory_bytes=None) if leanest else limit
    problem = with_parts(problem)
    at = reduced(problem, spaces(problem), pruning)
    found = _rows(problem, at, limit, leanest)
    if found is None:
        return
    rows, memory, capacity = found
    layers = layer_counts(problem.job)
    least = least_memory(memory, rows.strategy, layers, rows.fixed, rows.offloads)
    least = np.maximum(least, least_beside_host(memory, rows.strategy, problem.job.pool.gpus_per_node, layers))
    floor = memory.margin * (least - capacity)
    order = np.argsort(floor, kind="stable")
    for start in range(0, len(order), CHUNK):
        chunk = order[start : start + CHUNK]
        yield float(floor[chunk[0]]), _bounded(problem, rows, memory, capacity, limit, (chunk, least))


def _bounded(
    problem: Problem,
    rows: Rows,
    memory: MemoryTable,
    capacity: FloatArray,
    limit: Caps,
    chunk: tuple[IntArray, FloatArray],
) -> list[_Candidate]:
    at, least = chunk
    mine = rows.take(at)
    found: list[_Candidate] = []
    places = {key: place for place, key in enumerate(map(mine.key, range(len(mine))))}
    for group in grouped(problem, mine, {0: memory.take(at)}, limit.max_times(mine.strategy), least[at]):
        peaks = peak_bound(group.batch(slice(None)))
        for index in np.nonzero(np.isfinite(peaks))[0]:
            place = at[places[group.rows.key(int(index))]]
            margin, held = float(memory.margin[place]), float(capacity[place])
            lower = margin * (max(float(peaks[index]) * MEMORY_UNIT, float(least[place])) - held)
            found.append(_Candidate(lower=lower, group=group, index=int(index), capacity=held, margin=margin))
    return sorted(found, key=lambda candidate: candidate.lower)


def _rows(
    problem: Problem, at: Sequence[BackendSpace], limit: Caps, leanest: bool
) -> tuple[Rows, MemoryTable, FloatArray] | None:
    """Rows that limits on time and hosts allow, their memory with devices unlimited, and what a rank may allocate."""
    every = rows_of(at, *every_topology(at))
    if not len(every[0]):
        return None
    price = prices(None)
    rows = priced_rows(problem, price if limit.on_time else replace(price, time=no_time), at, *every)
    rows = rows.take(rows.lower <= limit.max_times(rows.strategy))
    if not len(rows):
        return None
    memory = price.memory(problem.job, rows.strategy, problem.calibration, problem.oom_risk)
    capacity = caps(problem).bounded(memory).capacity
    memory = limit.bounded(memory)
    host = host_need(problem, rows, memory, problem.job.pool.gpus_per_node)
    held = host <= (host.min() if leanest else memory.host_capacity)
    return (rows.take(held), memory.take(held), capacity[held]) if held.any() else None
