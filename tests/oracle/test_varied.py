"""Any decision open, any list of objectives, limits, risk and tolerance: the answer is exactly the one that is claimed.

Twice: on the grid, where ties count and everything must be equal, and by the unrounded ledger with rules of its own.
"""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from cost_models.ledger import Estimate, estimate
from cost_models.specs.configuration import BackendChoice, Configuration
from solver.audit.proof import prove
from solver.problem import SIDE, Limits, Problem
from solver.search import solve
from solver.solution import Solution
from tests.oracle.brute_force import configurations
from tests.oracle.grid import best, on_offer, where
from tests.oracle.test_limits import QUANTITIES, Priced
from tests.oracle.varied import PRICE, WATTS, Varied, varied
from tests.scale import scaled

FIRST, PRICED, ROUNDED = 110_000, 100, 2e-3
"""The first seed, configurations that the ledger prices, and the share of a step that rounding adds at most."""


def limited(seed: int, case: Varied) -> Problem:
    """The problem under a limit or two that the unlimited optimum just misses, or meets."""
    free, rng = case.problem(objectives=("throughput",), objective_tolerance=0.0), random.Random(seed)
    found = solve(free, check=False)
    if found.configuration is None:
        return case.problem()
    ledger = estimate(case.job, found.configuration, free.calibration, oom_risk=case.risk)
    at = Priced(found.configuration, ledger, case.job.training.sequence_length, WATTS)
    asked: dict[str, Any] = {}
    for name in rng.sample(SIDE, k=rng.choice([0, 1, 2])):
        value = QUANTITIES[name](at) * rng.choice([0.8, 0.97, 1.01, 1.3])
        asked[name] = max(1, int(value)) if name.endswith("_bytes") else value
    return case.problem(limits=Limits(**asked))


def reached(case: Varied, c: Configuration, ledger: Estimate) -> dict[str, float]:
    """Value of every objective, by the ledger."""
    batch = case.job.training.batch_range
    share = 1 / c.global_batch_size if batch.min != batch.max else 1.0
    step, gpus, tokens = ledger.time.step_seconds, c.world_size, c.global_batch_size * case.job.training.sequence_length
    return {
        "throughput": step * share,
        "memory": ledger.memory.allocated_bytes,
        "gpus": gpus,
        "cost": gpus * step * PRICE / 3600 * share,
        "cost_per_token": gpus * step * PRICE / 3600 / tokens,
        "energy": gpus * step * WATTS * share,
    }


def sampled(case: Varied, own: Configuration | None) -> list[Configuration]:
    """Legal configurations, all of them where they are few; the answer is one of them."""
    every = [c for gpus in case.counts for c in configurations(case.job, case.choices, gpus)]
    some = every[:: 1 + len(every) // PRICED]
    if own is not None:
        named = own.model_copy(update={"backend": BackendChoice(name=own.backend.name)})
        assert named in every
        some.append(named)
    return some


def fitting(case: Varied, problem: Problem, some: list[Configuration]) -> Iterator[tuple[dict[str, float], bool]]:
    """Values of those that fit and meet the limits; and whether they do so with room for rounding."""
    for c in some:
        ledger = estimate(case.job, c, problem.calibration, oom_risk=case.risk)
        memory = ledger.memory
        priced = Priced(c, ledger, case.job.training.sequence_length, WATTS)
        kept, surely = memory.fits, memory.conservative_bytes <= memory.usable_bytes * (1 - 1e-4)
        surely &= memory.host_node_bytes <= memory.host_usable_bytes * (1 - 1e-4)
        for name in SIDE:
            stated = getattr(problem.limits, name)
            if stated is None:
                continue
            value, sign = QUANTITIES[name](priced), -1 if name.startswith("min_") else 1
            kept &= sign * value <= sign * stated
            surely &= sign * value <= sign * stated * (1 - sign * ROUNDED)
            surely &= name != "max_communication_fraction" or c.pipeline_parallel == 1
        if kept:
            yield reached(case, c, ledger), surely


def unrounded(case: Varied, problem: Problem, solution: Solution) -> None:
    """The first objective against the ledger of many configurations; where rounding decides what fits, either way."""
    name, own = problem.objectives[0], solution.configuration
    every = [(values[name], surely) for values, surely in fitting(case, problem, sampled(case, own))]
    sure = min((value for value, surely in every if surely), default=None)
    if own is None:
        assert sure is None
        return
    first, (reaches, _) = solution.objectives[0], every[-1]
    slack = 1024 * (2 * case.job.model.num_hidden_layers + 3) if name == "memory" else ROUNDED * first.bound
    assert reaches * (1 - 1e-12) <= first.value <= reaches + slack
    assert first.value <= first.bound * (1 + problem.objective_tolerance) * (1 + 1e-12)
    assert sure is None or first.bound <= sure + slack


@pytest.mark.parametrize("seed", range(FIRST, FIRST + scaled(12, 800)))
def test_the_answer_is_exactly_the_one_that_is_claimed(seed: int) -> None:
    case = varied(seed)
    problem = limited(seed, case)
    solution, claimed = solve(problem), best(problem)
    unrounded(case, problem, solution)
    assert (solution.configuration is None) == (claimed is None)
    bounds = None
    if claimed is not None and solution.configuration is not None:
        found, optima = claimed
        assert where(problem, solution.configuration) == (found.place, found.plainness)
        bounds = optima if problem.objective_tolerance else None
    assert prove(problem, solution.configuration, bounds).contradictions == ()


@pytest.mark.parametrize("seed", range(FIRST + 50_000, FIRST + 50_000 + scaled(15, 1500)))
def test_as_many_configurations_are_legal_as_the_rules_leave(seed: int) -> None:
    """Rules said twice, once as files and once in plain Python, and layouts enumerated twice."""
    case = varied(seed)
    stated = sum(1 for gpus in case.counts for _ in configurations(case.job, case.choices, gpus))
    assert on_offer(case.problem()) == stated
