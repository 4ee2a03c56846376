"""Every reduction of the space: optimum with it equals optimum without it, on real prices."""

from dataclasses import fields, replace

import pytest

from solver.dominance import Pruning
from solver.feasibility import feasible
from solver.problem import Limits
from solver.search import solve
from tests.oracle import pools
from tests.oracle.instances import instance
from tests.scale import scaled


@pytest.mark.parametrize("name", [f.name for f in fields(Pruning)])
def test_a_reduction_never_changes_the_optimum(name: str) -> None:
    without = replace(Pruning(), **{name: False})
    compared = 0
    for seed in range(4000, 4000 + scaled(10, 200)):
        problem = instance(seed).problem()
        fast, slow = solve(problem), solve(problem, pruning=without)
        assert fast.status == slow.status, f"seed {seed}"
        if fast.configuration is not None:
            compared += 1
            assert fast.value == slow.value, f"seed {seed}: {fast.configuration} against {slow.configuration}"
    assert compared >= 3


@pytest.mark.parametrize("name", ["micro_batches", "sequence_parallel", "topology_floor", "necessary_memory"])
def test_a_reduction_never_changes_what_is_feasible_(name: str) -> None:
    without, infeasible = replace(Pruning(), **{name: False}), 0
    for seed in range(4300, 4300 + scaled(12, 300)):
        case = instance(seed)
        limits = Limits(max_step_seconds=10.0 ** (seed % 5 - 3)) if seed % 3 == 0 else Limits()
        problem = case.problem(limits=limits)
        answers = [bool(feasible(problem, pruning=pruning)) for pruning in (Pruning(), without)]
        assert answers[0] == answers[1], f"seed {seed}"
        infeasible += not answers[0]
    assert infeasible >= 2


@pytest.mark.parametrize("several", [False, True])
def test_rows_that_cannot_keep_a_limit_on_communication_are_no_loss(several: bool) -> None:
    without, statuses, spared = Pruning(communication=False), set(), 0
    for seed in range(4600, 4600 + scaled(7 if several else 14, 200)):
        limits = Limits(max_communication_fraction=(0.0, 0.001, 0.01, 0.03, 0.1, 0.2, 0.4)[seed % 7])
        problem = pools.problem(pools.pooled(seed), limits=limits) if several else instance(seed).problem(limits=limits)
        fast, slow = solve(problem), solve(problem, pruning=without)
        assert fast.status == slow.status, f"seed {seed}"
        statuses.add(fast.status)
        spared += slow.candidates.bounded - fast.candidates.bounded
        if fast.configuration is not None:
            assert fast.value == slow.value, f"seed {seed}"
    assert statuses == {"optimal", "infeasible"}
    assert spared > 0
