"""The audit against the search on seeded random instances: right claims stand, wrong claims fall, floors are floors."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from solver.audit import arguments
from solver.audit.arguments import ARGUMENTS, MODEL, OPEN, discard
from solver.audit.claim import Question
from solver.audit.paths import Unsettled, find
from solver.audit.proof import prove
from solver.audit.space import backends, every_space, legal_rows
from solver.objectives import objectives
from solver.search import solve
from solver.space import spaces
from tests.oracle.instances import instance
from tests.scale import scaled

SEEDS = range(50_000, 50_000 + scaled(12, 1500))
LISTS: tuple[tuple[Any, ...], ...] = (("throughput",), ("memory",), ("throughput", "memory"), ("cost",))


@pytest.mark.parametrize("seed", SEEDS)
def test_what_the_search_says_is_proven_by_other_means(seed: int) -> None:
    problem = instance(seed).problem(objectives=LISTS[seed % len(LISTS)])
    solution = solve(problem)
    proof = prove(problem, solution.configuration)
    assert proof.contradictions == ()
    assert len(proof.values) == (0 if solution.configuration is None else len(objectives(problem)))
    for value, stated in zip(proof.values, solution.objectives, strict=True):
        assert float(value.exact) * value.scale == pytest.approx(stated.value, rel=1e-12)
    if solution.configuration is not None:
        assert prove(problem, None).contradictions, "there is a configuration"
    for rival in solution.alternatives:
        assert prove(problem, rival.configuration).contradictions, "it is not the best one"


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_are_those_of_the_search(seed: int) -> None:
    problem = instance(seed).problem()
    for space, backend in zip(spaces(problem), backends(problem), strict=True):
        ours, theirs = legal_rows(problem, backend), space.strategy(*space.rows(np.arange(space.size)))
        for name in ours.__slots__:
            assert np.array_equal(getattr(ours, name), getattr(theirs, name)), name


@pytest.mark.parametrize("seed", SEEDS)
def test_floors_never_exceed_what_a_layout_reaches(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row that has a layout is looked at when nothing is limited, and its floor is below its optimum."""
    problem = instance(seed).problem()
    monkeypatch.setattr(arguments, "find", lambda *_: None)
    for part in discard(problem, Question(name="anything"), every_space(problem)):
        looked = {asked.index for asked in part.looked_at}
        for asked in part.looked_at:
            try:
                layout, most = find(asked.row, np.inf, asked.most_peak), np.inf
                while layout is not None:
                    most, _ = asked.row.cost(layout)
                    layout = find(asked.row, most - 1, asked.most_peak)
            except Unsettled:
                continue
            assert asked.floor <= most
        for index in set(range(len(part.rows))) - looked:
            assert ARGUMENTS[part.argument[index]] in {"layers", "memory", "host_memory"}
            assert part.argument[index] not in {OPEN, MODEL}


def test_a_bound_that_is_too_high_falls() -> None:
    problems = (instance(seed).problem() for seed in range(50_000, 50_040))
    problem, solution = next(found for found in ((p, solve(p)) for p in problems) if found[1].configuration is not None)
    exact = prove(problem, solution.configuration).values[0].exact
    assert not prove(problem, solution.configuration, (exact,)).contradictions
    assert not prove(problem, solution.configuration, (exact / 2,)).contradictions
    assert prove(problem, solution.configuration, (exact + Fraction(1),)).contradictions
