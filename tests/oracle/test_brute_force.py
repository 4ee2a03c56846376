"""The solver against brute force on seeded random instances: same feasibility, same objective."""

import pytest

from cost_models import catalog
from solver.search import solve
from tests.oracle.brute_force import best_step
from tests.oracle.instances import instance
from tests.scale import scaled

SEEDS = range(scaled(60, 3000))


@pytest.mark.parametrize("seed", SEEDS)
def test_fastest_step_equals_brute_force(seed: int) -> None:
    case = instance(seed)
    best, seen = best_step(case.job, case.choices, catalog.calibration(), case.gpus)
    solution = solve(case.problem())
    assert solution.candidates.legal > 0 or seen == 0
    if best is None:
        assert solution.status == "infeasible"
        return
    assert solution.status == "optimal", f"brute force found {best.configuration}"
    slack = solution.rounding_seconds
    assert best.value <= solution.value * (1 + 1e-12), "brute force is the optimum of the unrounded model"
    assert solution.value <= best.value + slack, f"brute force found {best.value} with {best.configuration}"
