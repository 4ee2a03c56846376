"""Ties: the plainest layout of the winning row, and the simplest row within a tolerance, against enumeration."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from cost_models import catalog
from cost_models.ledger import Estimate, estimate
from cost_models.strategy import Strategy
from solver.audit.proof import prove
from solver.inner import solve_row
from solver.plainest import plainest, plainness
from solver.search import solve
from solver.simplicity import simplicity
from tests.oracle.batches import batch
from tests.oracle.brute_force import configurations
from tests.oracle.instances import instance
from tests.oracle.layouts import layouts, pay
from tests.scale import scaled


@pytest.mark.parametrize("seed", range(70_000, 70_000 + scaled(30, 2000)))
def test_no_layout_of_equal_value_is_plainer(seed: int) -> None:
    rows = batch(seed)
    for i in range(len(rows)):
        row = rows.row(i)
        best = solve_row(row, "time", deterministic_time=10.0)
        if best.layout is None or best.cost is None:
            continue
        for slack in 0, 10, 200:
            limit = best.cost.time + slack if row.max_time is None else min(best.cost.time + slack, row.max_time)
            found = plainest(row, best.layout, 10.0, most_time=limit)
            paid = ((layout, pay(row, layout)) for layout in layouts(row))
            least = min(plainness(layout) for layout, price in paid if price.fits and price.time <= limit)
            assert found.proven
            assert plainness(found.layout) == least


def value(goal: str, ledger: Estimate, gpus: int) -> float:
    """Of a configuration by an objective."""
    if goal == "memory":
        return ledger.memory.allocated_bytes
    return ledger.time.step_seconds * (gpus * 2.0 / 3600 if goal == "cost" else 1.0)


@pytest.mark.parametrize("objective", ["throughput", "memory", "cost"])
def test_a_tolerance_buys_the_simplest_configuration_within_it(objective: Any) -> None:
    calibration, changed = catalog.calibration(), 0
    for seed in range(71_000, 71_000 + scaled(9, 300)):
        case = instance(seed)
        problem = case.problem(objectives=(objective,))
        problem = replace(problem, domains=problem.domains.with_values(gpus=(case.gpus,)))
        exact, loose = solve(problem), solve(replace(problem, objective_tolerance=0.3))
        assert exact.status == loose.status
        if exact.configuration is None or loose.configuration is None:
            continue
        goals = [o.name for o in exact.objectives]
        ledgers = []
        for c in configurations(case.job, case.choices, case.gpus):
            ledger = estimate(case.job, c, calibration, oom_risk=0.01)
            if ledger.memory.fits:
                ledgers.append((int(simplicity(Strategy.of(c))), ledger))
        bounds = {o.name: o.value * 1.3 for o in exact.objectives}
        within = [
            (score, ledger)
            for score, ledger in ledgers
            if all(value(goal, ledger, case.gpus) <= bounds[goal] * (1 - 1e-3) for goal in goals)
        ]
        score = int(simplicity(Strategy.of(loose.configuration)))
        assert score <= min((score for score, _ in within), default=score), f"seed {seed}"
        reached = estimate(case.job, loose.configuration, calibration, oom_risk=0.01)
        assert all(value(goal, reached, case.gpus) <= bounds[goal] for goal in goals)
        alike = [value(goals[-1], ledger, case.gpus) for other, ledger in within if other == score]
        assert value(goals[-1], reached, case.gpus) <= min(alike, default=np.inf) * (1 + 1e-3)
        changed += loose.configuration != exact.configuration
        bound = tuple(v.exact for v in prove(problem, exact.configuration).values)
        tolerant = replace(problem, objective_tolerance=0.3)
        assert not prove(tolerant, loose.configuration, bound).contradictions
        assert prove(tolerant, loose.configuration, tuple(b * Fraction(9, 10) for b in bound)).contradictions
    assert changed
