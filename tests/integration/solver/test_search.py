"""The whole solve: reproducible, verified, honest about limits, and never hurt by more freedom."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cost_models.job import Job
from cost_models.strategy import Strategy
from cost_models.table import Table, price
from solver import search as search_module
from solver import ties
from solver.best_first import search
from solver.caps import caps
from solver.domains import requirement
from solver.dominance import Pruning, reduced
from solver.errors import LimitReached, VerificationFailed
from solver.objectives import objectives
from solver.problem import Budget, Limits
from solver.rows import prices
from solver.search import solve
from solver.simplicity import simplicity
from solver.space import spaces
from solver.standing import Counters, Question, Standing
from solver.verify import verify
from tests.oracle.instances import Instance, instance
from tests.scale import scaled

ROOT = Path(__file__).parents[3]
FEASIBLE = [seed for seed in range(40) if solve(instance(seed).problem(), check=False).configuration is not None]


def test_the_winner_is_priced_again_by_the_ledger() -> None:
    problem = instance(FEASIBLE[0]).problem()

    def cheaper(job: Job, strategy: Any, calibration: Any, *, oom_risk: float = 0.01) -> Table:
        table = price(job, strategy, calibration, oom_risk=oom_risk)
        saved = 0.05 * np.abs(table.time.layer).sum(axis=(1, 2)) + 1e-4
        return replace(table, time=replace(table.time, fixed=table.time.fixed - saved))

    question = Question(
        problem=problem,
        spaces=reduced(problem, spaces(problem), Pruning()),
        prices=prices(cheaper),
        objective=objectives(problem)[0],
        caps=caps(problem),
    )
    found = search(question, Standing(question=question, counters=Counters()))
    assert found is not None
    with pytest.raises(VerificationFailed, match="by the ledger and"):
        verify(problem, found)


def test_a_side_constraint_on_the_step_is_kept_or_proven_impossible() -> None:
    problem = instance(FEASIBLE[1]).problem(objectives=("memory",))
    free = solve(problem)
    fastest = solve(replace(problem, objectives=("throughput",)))
    step = fastest.value * 1.01
    held = solve(replace(problem, limits=Limits(max_step_seconds=step)))
    assert held.status == "optimal"
    assert held.objectives[1].value <= step
    assert held.value >= free.value
    impossible = solve(replace(problem, limits=Limits(max_step_seconds=fastest.value * 0.99)))
    assert impossible.status == "infeasible"


def test_a_wish_is_kept_and_never_helps() -> None:
    for seed in FEASIBLE[:4]:
        case = instance(seed)
        free = solve(case.problem())
        size = case.choices["micro_batch_size"][0]
        pinned = solve(case.problem(requirements=(requirement("micro_batch_size", size),)))
        if pinned.configuration is not None:
            assert pinned.configuration.micro_batch_size == size
            assert pinned.value >= free.value


def _with(case: Instance, **pool: Any) -> Instance:
    grown = case.job.pool.model_copy(update=pool)
    cluster = case.job.cluster.model_copy(update={"pools": (grown,)})
    return replace(case, job=Job(model=case.job.model, training=case.job.training, cluster=cluster))


@pytest.mark.parametrize("seed", range(scaled(8, 80)))
def test_more_memory_never_hurts(seed: int) -> None:
    case = instance(seed)
    device = case.job.device
    usable = min(int(device.usable_memory_bytes * 1.3), device.total_memory_bytes)
    before = solve(case.problem())
    larger = device.model_copy(update={"usable_memory_bytes": usable})
    after = solve(_with(case, device=larger, host_memory_bytes=2**41).problem())
    if before.configuration is not None:
        assert after.configuration is not None
        assert after.value <= before.value


def test_a_tolerance_buys_simplicity_and_no_more_than_it_costs() -> None:
    simpler = 0
    for seed in FEASIBLE[:8]:
        problem = instance(seed).problem()
        exact, relaxed = solve(problem), solve(replace(problem, objective_tolerance=0.2))
        assert exact.configuration is not None
        assert relaxed.configuration is not None
        assert relaxed.value <= exact.value * 1.2 * (1 + 1e-12)
        scores = [
            int(simplicity(Strategy.of(s.configuration))) for s in (exact, relaxed) if s.configuration is not None
        ]
        assert scores[1] <= scores[0]
        simpler += scores[1] < scores[0]
    assert simpler > 0


def test_a_spent_budget_is_said() -> None:
    problem = instance(FEASIBLE[0]).problem(budget=Budget(max_priced_rows=0))
    with pytest.raises(LimitReached, match="0 priced rows"):
        solve(problem)


def test_a_tolerance_that_the_budget_leaves_unapplied_is_said() -> None:
    told = 0
    for seed in FEASIBLE:
        problem = instance(seed).problem(objective_tolerance=0.2)
        assert solve(problem).notes == ()
        try:
            cut = solve(replace(problem, budget=Budget(max_solves=0)))
        except LimitReached:
            continue
        words = " ".join(cut.notes)
        assert (cut.status == "feasible") <= ("was proven best" in words and "0.2 was not applied" in words)
        assert all("the budget ran out" in note for note in cut.notes)
        told += bool(cut.notes)
    assert told > 0


def test_a_simpler_configuration_that_the_budget_leaves_unsought_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = instance(FEASIBLE[0]).problem(objective_tolerance=0.2)
    simplest = ties.simplest

    def cut(run: Any, *rest: Any) -> Any:
        found = simplest(run, *rest)
        run.counters.exhausted = False
        return found

    monkeypatch.setattr(search_module, "simplest", cut)
    assert solve(problem).notes == ("the budget ran out: a simpler configuration within objective_tolerance may exist",)


def test_dropped_and_legal_candidates_add_up_to_the_raw_space() -> None:
    for seed in range(10):
        solution = solve(instance(seed).problem(), check=False)
        assert sum(d.candidates for d in solution.dropped) + solution.candidates.legal <= solution.candidates.raw


def test_a_limit_on_solves_leaves_a_bound_that_holds() -> None:
    unproven = 0
    for seed in FEASIBLE:
        problem = instance(seed).problem()
        exact = solve(problem)
        if not exact.candidates.solved:
            continue
        try:
            cut = solve(replace(problem, budget=Budget(max_solves=0)))
        except LimitReached:
            continue
        assert cut.bound <= exact.value <= cut.value
        if cut.status == "feasible":
            unproven += 1
            assert cut.gap >= 0
            assert not cut.objectives[0].proven or cut.value == exact.value
    assert unproven > 0
