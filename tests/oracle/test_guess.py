"""The order in which rows are looked at: it finds good plans early and never changes the optimum."""

import numpy as np
import pytest

from benchmarks.instances import problem
from cost_models.arrays import FloatArray
from cost_models.table import MemoryTable
from solver import pending
from solver.rows import Rows
from solver.search import solve
from tests.oracle.instances import instance


def _backwards(rows: Rows, memory: MemoryTable, counts: FloatArray) -> FloatArray:
    return -np.arange(len(rows)).astype(float)


def test_any_order_finds_the_same_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    problems = [instance(seed).problem() for seed in range(5000, 5012)]
    guessed = [solve(asked) for asked in problems]
    monkeypatch.setattr(pending, "guess", _backwards)
    for ours, other in zip(guessed, [solve(asked) for asked in problems], strict=True):
        assert (ours.status, ours.configuration) == (other.status, other.configuration)
    assert sum(answer.configuration is not None for answer in guessed) >= 4


def test_guessing_spares_rows_that_another_order_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = problem("I3", "any")
    guessed = solve(asked)
    monkeypatch.setattr(pending, "guess", lambda rows, memory, counts: rows.lower)
    by_bound = solve(asked)
    assert guessed.configuration == by_bound.configuration
    assert guessed.candidates.priced < by_bound.candidates.priced / 2
