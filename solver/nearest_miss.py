"""The nearest miss: the legal configuration that overflows the device by least, and by how much in each phase."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cost_models.ledger import MemoryLedger, estimate
from cost_models.specs.configuration import Configuration
from solver.bounds.first import least_host, least_memory
from solver.bounds.peak import peak_bound
from solver.caps import caps
from solver.dominance import Pruning, reduced
from solver.groups import Group, grouped
from solver.inner import solve_row
from solver.problem import Problem
from solver.rounding import MEMORY_UNIT, memory_down
from solver.rows import layer_counts, priced_rows, prices
from solver.space import BackendSpace, every_topology, rows_of, spaces
from solver.verify import configuration


@dataclass(frozen=True, slots=True, kw_only=True)
class NearestMiss:
    """What comes closest to fitting, priced by the ledger."""

    configuration: Configuration
    stage: int
    instant: str
    phase: str
    shortfall_bytes: float
    """Per device at the asked risk: how much more than it has it would need."""
    phase_shortfall_bytes: Mapping[str, float]
    """The same by phase; only phases that do not fit."""
    host_shortfall_bytes: float
    """Of the fullest node; 0 where host memory suffices."""
    excess_bytes: int
    """Of allocated memory on the fullest rank, the quantity that was minimised."""


CHUNK = 400

_Candidate = tuple[float, int, Group, int]
"""Lower bound on the excess, capacity, group, index in it."""


def nearest_miss(problem: Problem, *, host_memory: bool = True) -> NearestMiss | None:
    """The configuration with the least excess over its device's capacity; None when none is legal.

    With `host_memory` only configurations that the nodes can hold count; where there are none, those that need least
    of a node.
    """
    at = reduced(problem, spaces(problem), Pruning(), timed=False)
    best = _nearest(problem, at, host_memory=host_memory)
    if best is None and host_memory:
        best = _nearest(problem, at, host_memory=False, leanest=True)
    return None if best is None else _priced(problem, *best)


def _nearest(
    problem: Problem, at: Sequence[BackendSpace], *, host_memory: bool, leanest: bool = False
) -> tuple[int, Configuration] | None:
    """Rows are taken by a lower bound on their excess, each solved exactly for its least peak, until none is below."""
    best: tuple[int, Configuration] | None = None
    for space in at:
        for floor, candidates in _candidates(problem, space, host_memory, leanest):
            if best is not None and floor >= best[0]:
                break
            for lower, capacity, group, i in candidates:
                if best is not None and lower >= best[0]:
                    break
                row = group.row(i)
                most = None if best is None else best[0] + capacity - 1
                answer = solve_row(row, "memory", most=most, deterministic_time=problem.budget.row_deterministic_time)
                if answer.cost is not None and answer.layout is not None:
                    chosen = configuration(problem, group.rows.strategy.row(i), answer.layout)
                    best = answer.cost.memory - capacity, chosen
    return best


def _candidates(
    problem: Problem, space: BackendSpace, host_memory: bool, leanest: bool
) -> Iterator[tuple[float, list[_Candidate]]]:
    """Rows of a space in chunks by ascending floor of their excess; within a chunk by ascending bound. [KiB]"""
    if not space.size:
        return
    limit, price = replace(caps(problem), device_memory=False, host_memory=host_memory), prices(None)
    rows = priced_rows(problem, price, (space,), *rows_of((space,), *every_topology((space,))))
    rows = rows.take(rows.lower <= limit.max_times(rows.strategy))
    if not len(rows):
        return
    memory = price.memory(problem.job, rows.strategy, problem.calibration, problem.oom_risk)
    room = memory_down(caps(problem).bounded(memory).capacity)
    memory = limit.bounded(memory)
    host = least_host(memory, rows.strategy, problem.job.pool.gpus_per_node)
    held = host <= (host.min() if leanest else memory.host_capacity)
    rows, memory, room = rows.take(held), memory.take(held), room[held]
    least = least_memory(memory, rows.strategy, layer_counts(problem.job), rows.fixed, rows.offloads)
    excess = memory_down(least) - room
    order = np.argsort(excess, kind="stable")
    for start in range(0, len(order), CHUNK):
        at = order[start : start + CHUNK]
        times = limit.max_times(rows.strategy.take(at))
        capacity = dict(zip(zip(rows.topology[at], rows.feature[at], strict=True), room[at], strict=True))
        found: list[_Candidate] = []
        for group in grouped(problem, rows.take(at), {0: memory.take(at)}, times, least[at]):
            peaks, keys = (
                peak_bound(group.batch(slice(None))),
                zip(group.rows.topology, group.rows.feature, strict=True),
            )
            own = [int(capacity[key]) for key in keys]
            found += [(float(peaks[i]) - own[i], own[i], group, int(i)) for i in np.nonzero(np.isfinite(peaks))[0]]
        yield float(excess[order[start]]), sorted(found, key=lambda candidate: candidate[0])


def _priced(problem: Problem, excess: int, chosen: Configuration) -> NearestMiss:
    ledger = estimate(problem.job, chosen, problem.calibration, oom_risk=problem.oom_risk).memory
    stage, instant = ledger.binding
    over = {phase: need - ledger.usable_bytes for phase, need in phase_needs(ledger).items()}
    return NearestMiss(
        configuration=chosen,
        stage=stage,
        instant=instant,
        phase=ledger.phase_of[instant],
        shortfall_bytes=max(ledger.conservative_bytes - ledger.usable_bytes, 0.0),
        phase_shortfall_bytes={phase: size for phase, size in over.items() if size > 0},
        host_shortfall_bytes=max(ledger.host_node_bytes - ledger.host_usable_bytes, 0.0),
        excess_bytes=excess * MEMORY_UNIT,
    )


def phase_needs(ledger: MemoryLedger) -> dict[str, float]:
    """What a device must hold in each phase at the asked risk. [bytes]"""
    margin = ledger.allocated_quantile * ledger.fragmentation_quantile
    needs: dict[str, float] = {}
    for stage in ledger.stages:
        for instant in stage.instants:
            need = stage.allocated(instant) * margin + ledger.context_bytes + ledger.communicator_bytes
            phase = ledger.phase_of[instant]
            needs[phase] = max(needs.get(phase, 0.0), need)
    return needs
