"""The inner problem against enumeration: CP-SAT finds the optimum, bounds enclose it, costs agree."""

from functools import partial

import numpy as np
import pytest

from solver.bounds.holding import may_win
from solver.bounds.peak import peak_bound
from solver.bounds.row import layout_of, row_bounds, shortened
from solver.inner import solve_row
from solver.layout import cost, expressible
from tests.oracle.batches import batch
from tests.oracle.layouts import layouts, pay
from tests.scale import scaled

SEEDS = range(scaled(160, 4000))


@pytest.mark.parametrize("seed", SEEDS)
def test_inner_problem_equals_enumeration(seed: int) -> None:
    rows = batch(seed)
    bounds, peaks = row_bounds(rows), peak_bound(rows)
    for i in range(len(rows)):
        row = rows.row(i)
        paid = [(pay(row, layout), layout) for layout in layouts(row)]
        for price, layout in paid[:50]:
            ours = cost(row, layout)
            assert (ours.time, ours.memory, ours.fits) == (price.time, price.memory, price.fits)
            assert expressible(row, layout)
        fitting = [price for price, _ in paid if price.fits]
        fastest = min((price.time for price in fitting), default=None)
        answer = solve_row(row, "time", deterministic_time=10.0)
        assert answer.closed
        found = None if answer.cost is None else answer.cost.time
        assert found == fastest
        leanest = min((price.memory for price in fitting), default=None)
        least = solve_row(row, "memory", deterministic_time=10.0)
        assert (None if least.cost is None else least.cost.memory) == leanest
        assert (solve_row(row, "feasible", deterministic_time=10.0).layout is not None) == bool(fitting)
        if fastest is None or leanest is None:
            continue
        assert bounds.lower[i] <= fastest
        assert peaks[i] <= leanest
        way = bounds.way[i]
        if np.isfinite(bounds.upper[i]) and way is not None:
            layout = layout_of(rows.take([i]), *way)
            reached = cost(row, layout)
            if reached.fits and expressible(row, layout):
                assert reached.time == bounds.upper[i] >= fastest
        if bounds.lower[i] == bounds.upper[i] and way is not None and expressible(row, layout_of(rows.take([i]), *way)):
            assert fastest == bounds.upper[i]


@pytest.mark.parametrize("seed", SEEDS)
def test_fine_levels_of_offload_enclose_the_optimum_more_tightly(seed: int) -> None:
    rows = batch(seed)
    coarse, fine = row_bounds(rows), row_bounds(rows, fine=True)
    for i in range(len(rows)):
        row = rows.row(i)
        fastest = min((paid.time for paid in map(partial(pay, row), layouts(row)) if paid.fits), default=np.inf)
        assert coarse.lower[i] <= fine.lower[i] <= fastest
        way = fine.way[i]
        if np.isfinite(fine.upper[i]) and way is not None:
            layout = layout_of(rows.take([i]), *way)
            if cost(row, layout).fits and expressible(row, layout):
                assert cost(row, layout).time == fine.upper[i] >= fastest


@pytest.mark.parametrize("seed", range(scaled(40, 800)))
def test_cutoffs_and_limits_change_nothing_but_what_they_forbid(seed: int) -> None:
    rows = batch(seed, rows=1)
    row, bound = rows.row(0), row_bounds(rows)
    answer = solve_row(row, "time", deterministic_time=10.0)
    if answer.cost is None:
        assert row_bounds(rows, np.array([1.0])).lower[0] <= np.inf
        return
    best = answer.cost.time
    again = solve_row(row, "time", least=int(bound.lower[0]), most=best, deterministic_time=10.0)
    assert again.cost is not None
    assert again.cost.time == best
    assert solve_row(row, "time", most=best - 1, deterministic_time=10.0).layout is None
    for limit in (best - 1.0, float(best), best * 2.0):
        assert row_bounds(rows, np.array([limit])).lower[0] <= best


@pytest.mark.parametrize("seed", SEEDS)
def test_no_limit_that_a_layout_meets_rules_its_row_out(seed: int) -> None:
    rows = batch(seed)
    fastest = np.full(len(rows), np.inf)
    for i in range(len(rows)):
        row = rows.row(i)
        fastest[i] = min((paid.time for paid in map(partial(pay, row), layouts(row)) if paid.fits), default=np.inf)
    met = np.isfinite(fastest)
    limit = np.where(met, fastest, 1.0)
    assert may_win(rows, limit)[met].all()
    assert (row_bounds(rows, limit).lower <= fastest).all()
    assert (row_bounds(rows, limit - 1).lower[met] <= fastest[met]).all()
    near = row_bounds(rows, limit)
    for i in np.nonzero(near.upper <= limit)[0].tolist():
        way = near.way[i]
        assert way is not None
        paid = cost(rows.row(i), layout_of(rows.take([i]), *way))
        assert not paid.fits or paid.time == near.upper[i]


def test_a_limit_on_the_step_leaves_out_stages_that_are_too_long() -> None:
    shorter = 0
    for seed in range(600):
        rows = batch(seed)
        if not rows.shape.fixed:
            upper = row_bounds(rows).upper
            short = shortened(rows, np.where(np.isfinite(upper), upper, 1.0))
            shorter += short.shape.longest is not None
    assert shorter >= 3
