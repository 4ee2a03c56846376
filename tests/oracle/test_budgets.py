"""Limits in deterministic units: a search that one stops says so, with a bound that holds, the same every time."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from benchmarks.instances import problem as benchmark
from solver.audit.proof import prove
from solver.errors import LimitReached
from solver.objectives import objectives
from solver.problem import Budget, Problem
from solver.search import solve
from solver.solution import Solution
from tests.oracle.instances import instance
from tests.scale import scaled

BUDGETS: dict[str, Any] = {
    "no solves": {"max_solves": 0},
    "one solve": {"max_solves": 1},
    "short solves": {"row_deterministic_time": 1e-7},
    "few rows": {"max_priced_rows": 1},
}


def limited(problem: Problem, budget: dict[str, Any]) -> Solution | None:
    try:
        return solve(replace(problem, budget=Budget(**budget)))
    except LimitReached:
        return None


def check(problem: Problem, best: Solution, budget: dict[str, Any]) -> str:
    """A limited solve is right about what it does not know."""
    found = limited(problem, budget)
    if found is None:
        return "nothing found"
    assert found == limited(problem, budget)
    if found.status == "infeasible" or best.status == "infeasible":
        assert found.status == best.status
        return found.status
    first, optimum = found.objectives[0], best.objectives[0].value
    assert first.bound <= optimum * (1 + 1e-9)
    assert optimum <= first.value * (1 + 1e-9)
    assert (found.status == "optimal") == (first.gap == 0 and all(o.proven for o in found.objectives))
    assert found.status == "optimal" or found.notes
    goal = objectives(problem)[0]
    bound = Fraction(first.bound / goal.scale) * (1 - Fraction(1, 10**12))
    rest = tuple(Fraction(o.bound / g.scale) / 2 for o, g in zip(found.objectives, objectives(problem), strict=True))
    assert not prove(problem, found.configuration, (bound, *rest[1:])).contradictions
    return found.status


@pytest.mark.parametrize("name", BUDGETS)
@pytest.mark.parametrize("objective", ["throughput", "memory"])
def test_a_limited_search_bounds_the_optimum(name: str, objective: Any) -> None:
    seen = []
    for seed in range(80_000, 80_000 + scaled(7, 400)):
        problem = instance(seed).problem(objectives=(objective,))
        seen.append(check(problem, solve(problem), BUDGETS[name]))
    assert len(seen) - seen.count("nothing found") >= 3


@pytest.mark.parametrize("budget", [{"max_priced_rows": 500}, {"max_solves": 0}], ids=["few rows", "no solves"])
def test_a_limit_on_a_large_space_leaves_a_gap(budget: dict[str, Any]) -> None:
    problem = replace(benchmark("I4", "megatron"), alternatives=0)
    found, best = limited(problem, budget), solve(problem)
    assert found is not None
    assert found.objectives[0].bound <= best.value <= found.value
    if found.status == "feasible":
        assert found.gap > 0
