"""The least shortfall: how much more memory every device would need for some configuration to fit, proven least."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cost_models.arrays import FloatArray, IntArray
from cost_models.calibration import Calibration
from cost_models.job import Job
from cost_models.specs.configuration import Configuration
from cost_models.strategy import Strategy
from cost_models.table import MemoryTable
from solver.bounds.first import least_beside_host, least_memory
from solver.bounds.peak import peak_bound
from solver.caps import Caps, caps
from solver.ceilings import below_ceilings, worth_asking
from solver.dominance import Pruning, reduced
from solver.groups import Group, grouped
from solver.inner import solve_row
from solver.part import with_parts
from solver.problem import Problem
from solver.rounding import MEMORY_UNIT
from solver.rows import (
    MEMORY_CHUNK,
    Prices,
    Rows,
    host_need,
    layer_counts,
    may_keep_share,
    no_time,
    priced_rows,
    prices,
    with_communication,
)
from solver.space import BackendSpace, every_topology, rows_of, spaces
from solver.verify import configuration

CHUNK = 400
"""Rows whose peak is bounded at once."""
LARGEST = np.iinfo(np.int64).max
At = tuple[IntArray, ...]
"""Space, topology and feature of rows, space by space."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """What a configuration lacks."""

    missing_bytes: float
    """Of usable memory on every device at the asked risk; at most 0 where the configuration fits."""
    configuration: Configuration


@dataclass(frozen=True, slots=True)
class _Question:
    """Which rows may be the one that lacks least."""

    problem: Problem
    prices: Prices
    spaces: Sequence[BackendSpace]
    limit: Caps
    """Device memory unlimited."""
    leanest: bool
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Priced:
    """Rows with their memory. [bytes]"""

    rows: Rows
    memory: MemoryTable
    capacity: FloatArray
    """What a rank may allocate."""
    least: FloatArray
    """First bound on the peak."""
    host: FloatArray
    """First bound on the fullest node."""


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
    a node. Rows are taken by a lower bound, each solved exactly for its least peak, until no bound is lower. Where
    they are many, those of the smallest micro-batch come first: what they lack rules out most of the others.
    """
    problem = with_parts(problem)
    limit = replace(caps(problem), device_memory=False, host_memory=host_memory)
    limit = replace(limit, max_host_memory_bytes=None) if leanest else limit
    price = prices(None) if limit.on_time else replace(prices(None), time=no_time)
    at = reduced(problem, spaces(problem), pruning)
    best: Shortfall | None = None
    # Which rows need least of a node only all of them tell.
    if pruning.ceilings and not leanest and worth_asking(problem, at):
        best = _least(_Question(problem, price, tuple(map(_smallest, at)), limit, leanest, step), None)
    if best is not None:
        held = replace(limit, device_memory=True, max_memory_bytes=None)
        at = below_ceilings(problem, _with_more(problem, price, best.missing_bytes), at, held)
    return _least(_Question(problem, price, at, limit, leanest, step), best)


def _smallest(space: BackendSpace) -> BackendSpace:
    """The rows of the smallest micro-batch."""
    size = space.topologies["micro_batch_size"]
    return replace(space, legal=space.legal & (size == size.min(initial=LARGEST))[:, None])


def _with_more(problem: Problem, price: Prices, missing: float) -> Prices:
    """Prices on devices with so many usable bytes more, under the limit that the user set."""
    bounded = caps(problem).bounded

    def memory(job: Job, strategy: Strategy, calibration: Calibration, risk: float) -> MemoryTable:
        table = price.memory(job, strategy, calibration, risk)
        return replace(table, capacity=bounded(table).capacity + max(missing, 0.0) / table.margin)

    return replace(price, memory=memory)


def _least(question: _Question, best: Shortfall | None) -> Shortfall | None:
    """The better of what is known and of the rows of a question."""
    for floor, candidates in _candidates(question, best):
        for candidate in [None, *candidates]:
            lower = floor if candidate is None else candidate.lower
            if best is not None and lower >= less_than(best, question.step):
                break
            best = best if candidate is None else _solved(question.problem, candidate, best, question.step)
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


def _candidates(question: _Question, best: Shortfall | None) -> Iterator[tuple[float, list[_Candidate]]]:
    """Rows in chunks by ascending floor of what they lack; within a chunk by ascending bound. [bytes]

    Every row is priced once for its floor, and once more only if its turn comes: so few are in memory at once.
    """
    every = rows_of(question.spaces, *every_topology(question.spaces))
    floor = _floors(question, every)
    order = np.argsort(floor, kind="stable")
    order = order[: np.count_nonzero(floor < (np.inf if best is None else less_than(best, question.step)))]
    for start in range(0, len(order), CHUNK):
        chunk = order[start : start + CHUNK]
        yield float(floor[chunk[0]]), _bounded(question, tuple(column[np.sort(chunk)] for column in every))


def _floors(question: _Question, every: At) -> FloatArray:
    """The least that each row can lack; infinite where a limit on time or the hosts rule it out. [bytes]"""
    floor, hosts = np.full(len(every[0]), np.inf), np.full(len(every[0]), np.inf)
    for start in range(0, len(floor), MEMORY_CHUNK):
        part = slice(start, start + MEMORY_CHUNK)
        priced = _priced(question, tuple(column[part] for column in every))
        held = (priced.rows.lower <= question.limit.max_times(priced.rows.strategy)) & (
            question.leanest | (priced.host <= priced.memory.host_capacity)
        )
        held &= may_keep_share(question.problem, priced.rows)
        floor[part] = np.where(held, priced.memory.margin * (priced.least - priced.capacity), np.inf)
        hosts[part] = np.where(held, priced.host, np.inf)
    if question.leanest:
        floor[hosts > hosts.min(initial=np.inf)] = np.inf
    return floor


def _priced(question: _Question, at: At) -> _Priced:
    """Rows with their memory where devices are unlimited, and what a rank may allocate."""
    problem, layers = question.problem, layer_counts(question.problem.job)
    rows = with_communication(problem, priced_rows(problem, question.prices, question.spaces, *at))
    memory = question.prices.memory(problem.job, rows.strategy, problem.calibration, problem.oom_risk)
    capacity = caps(problem).bounded(memory).capacity
    memory = question.limit.bounded(memory)
    per_node = problem.job.pool.gpus_per_node
    least = least_memory(memory, rows.strategy, layers, rows.fixed, rows.offloads)
    least = np.maximum(least, least_beside_host(memory, rows.strategy, per_node, layers))
    host = host_need(problem, rows, memory, per_node)
    return _Priced(rows=rows, memory=memory, capacity=capacity, least=least, host=host)


def _bounded(question: _Question, at: At) -> list[_Candidate]:
    """Rows with the bound on their exact peak, by ascending bound."""
    priced = _priced(question, at)
    mine, memory, limit = priced.rows, priced.memory, question.limit.max_times(priced.rows.strategy)
    found: list[_Candidate] = []
    places = {key: place for place, key in enumerate(map(mine.key, range(len(mine))))}
    for group in grouped(question.problem, mine, {0: memory}, limit, priced.least):
        peaks = peak_bound(group.batch(slice(None)))
        for index in np.nonzero(np.isfinite(peaks))[0]:
            place = places[group.rows.key(int(index))]
            margin, held = float(memory.margin[place]), float(priced.capacity[place])
            lower = margin * (max(float(peaks[index]) * MEMORY_UNIT, float(priced.least[place])) - held)
            found.append(_Candidate(lower=lower, group=group, index=int(index), capacity=held, margin=margin))
    return sorted(found, key=lambda candidate: candidate.lower)
