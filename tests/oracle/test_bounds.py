"""Every bound of the search encloses the exact optimum of every row, on real prices, small and large.

The optimum is the audit's: shortest paths that share nothing with the bounds.
"""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.instances import problem as benchmark
from solver.audit.paths import Unsettled, find
from solver.audit.row import AuditRow
from solver.bounds.holding import may_win
from solver.bounds.peak import peak_bound
from solver.bounds.row import layout_of, row_bounds
from solver.bounds.topology import topology_floors
from solver.caps import caps
from solver.groups import Group, grouped
from solver.layout import cost, expressible
from solver.problem import Problem
from solver.rounding import MEMORY_UNIT
from solver.rows import may_fit, priced_rows, prices, with_memory
from solver.space import every_topology, rows_of, spaces
from tests.oracle.audit_rows import audit_row
from tests.oracle.instances import instance
from tests.scale import FULL, scaled


def fastest(row: AuditRow, start: float) -> float:
    """Least v times the step; infinite where nothing fits. The search begins at `start`, if something is there."""
    best, layout = np.inf, find(row, start, np.inf) or find(row, np.inf, np.inf)
    while layout is not None:
        best = row.cost(layout)[0]
        layout = find(row, best - 1, np.inf)
    return best


def leanest(row: AuditRow) -> float:
    """Least peak; infinite where nothing fits."""
    best, layout = np.inf, find(row, np.inf, np.inf)
    while layout is not None:
        best = row.cost(layout)[1]
        layout = find(row, np.inf, best - 1)
    return best


def check(problem: Problem, most: int, *, fitting: bool = False) -> int:
    """Compare at most so many rows of a problem, of those that may fit; says how many had an optimum."""
    at, price = spaces(problem), prices(None)
    owner, topology = every_topology(at)
    if not len(owner):
        return 0
    floors = topology_floors(problem, price, at, lambda rows: np.ones(len(rows)))
    rows = priced_rows(problem, price, at, *rows_of(at, owner, topology))
    starts = np.cumsum([0, *(space.size for space in at)])
    if fitting:
        rows = rows.take(may_fit(problem, rows, *with_memory(problem, price, rows, caps(problem))))
    rows = rows.take(np.unique(np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(int)))
    floor = floors[starts[rows.space] + rows.topology]
    memory, least = with_memory(problem, price, rows, caps(problem))
    fits = may_fit(problem, rows, memory, least)
    compared = 0
    known = {key: (floor[i], fits[i]) for i, key in enumerate(map(rows.key, range(len(rows))))}
    for group in grouped(problem, rows, memory, caps(problem).max_times(rows.strategy), least):
        for i in range(len(group)):
            compared += _row(group, i, *known[group.rows.key(i)])
    return compared


def _row(group: Group, i: int, floor: float, fits: bool) -> bool:
    row = group.row(i)
    audited, batch = audit_row(row), group.batch([i])
    try:
        time, peak = fastest(audited, row_bounds(batch, fine=True).upper[0]), leanest(audited)
    except Unsettled:
        return False
    bounds = [row_bounds(batch), row_bounds(batch, fine=True), row_bounds(batch, np.array([time]))]
    for bound in bounds:
        way = bound.way[0]
        if np.isfinite(bound.upper[0]) and way is not None:
            layout = layout_of(batch, *way)
            paid = cost(row, layout)
            assert paid.time == bound.upper[0]
            assert not (paid.fits and expressible(row, layout)) or paid.time >= time
    if not np.isfinite(time):
        return False
    assert fits
    assert floor <= time
    assert group.rows.lower[i] <= time
    assert group.least[i] / MEMORY_UNIT <= peak
    assert peak_bound(batch)[0] <= peak
    assert all(bound.lower[0] <= time for bound in bounds)
    assert may_win(batch, np.array([time]))[0]
    return True


@pytest.mark.parametrize("seed", range(90_000, 90_000 + scaled(6, 1000)))
def test_bounds_enclose_the_optimum_of_small_jobs(seed: int) -> None:
    check(instance(seed).problem(), 60)


@pytest.mark.parametrize("name", ["I1", "I2", "I3", "I4"] if FULL else ["I1", "I2", "I3"])
def test_bounds_enclose_the_optimum_of_real_jobs(name: str) -> None:
    many = 40 if name == "I4" else 480
    assert check(replace(benchmark(name, "any"), alternatives=0), scaled(12, many), fitting=True) >= 1
