"""Every objective and every limit on a predicted quantity against brute force over complete configurations."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from cost_models import catalog
from cost_models.ledger import Estimate, estimate
from cost_models.specs.choices import OBJECTIVES, SPARING
from cost_models.specs.configuration import Configuration
from cost_models.specs.training import BatchRange
from solver.audit.limits import broken
from solver.audit.proof import prove
from solver.problem import SIDE, Limits
from solver.search import solve
from tests.oracle.brute_force import configurations
from tests.oracle.instances import Instance
from tests.oracle.test_objectives import on_four_gpus, small
from tests.scale import scaled

PRICE, SLACK = 2.0, 2e-3
COUNTS = (2, 4)


@dataclass(frozen=True)
class Priced:
    """A configuration that fits, by the ledger."""

    configuration: Configuration
    ledger: Estimate
    length: int
    watts: float

    @property
    def step(self) -> float:
        return self.ledger.time.step_seconds

    @property
    def gpus(self) -> int:
        return self.configuration.world_size

    @property
    def tokens(self) -> int:
        return self.configuration.global_batch_size * self.length


QUANTITIES: dict[str, Callable[[Priced], float]] = {
    "max_step_seconds": lambda c: c.step,
    "max_memory_bytes": lambda c: c.ledger.memory.allocated_bytes,
    "max_host_memory_bytes": lambda c: c.ledger.memory.host_node_bytes,
    "max_cost_per_step": lambda c: c.gpus * c.step * PRICE / 3600,
    "max_cost_per_token": lambda c: c.gpus * c.step * PRICE / 3600 / c.tokens,
    "max_energy_per_step": lambda c: c.gpus * c.step * c.watts,
    "min_tokens_per_second": lambda c: c.tokens / c.step,
    "min_tokens_per_second_per_gpu": lambda c: c.tokens / c.step / c.gpus,
    "max_communication_fraction": lambda c: c.ledger.time.communication_fraction,
}
VALUES: dict[str, Callable[[Priced], float]] = {
    "throughput": lambda c: c.step / c.configuration.global_batch_size,
    "memory": lambda c: c.ledger.memory.allocated_bytes,
    "gpus": lambda c: c.gpus,
    "cost": lambda c: c.gpus * c.step * PRICE / 3600 / c.configuration.global_batch_size,
    "cost_per_token": lambda c: c.gpus * c.step * PRICE / 3600 / c.tokens,
    "energy": lambda c: c.gpus * c.step * c.watts / c.configuration.global_batch_size,
}
"""With a batch in a range everything but memory, devices and tokens is per sequence."""


def case(seed: int) -> Instance:
    """On two or four devices, with a batch in a range."""
    found = on_four_gpus(small(seed))
    training = found.job.training.model_copy(update={"global_batch_size": BatchRange(min=4, max=6)})
    device = found.job.device.model_copy(update={"tdp_watts": 400.0})
    cluster = found.job.cluster.model_copy(update={"pools": (found.job.pool.model_copy(update={"device": device}),)})
    return replace(found, job=replace(found.job, training=training, cluster=cluster))


@cache
def fitting(seed: int) -> list[Priced]:
    asked, calibration = case(seed), catalog.calibration()
    out: list[Priced] = []
    for gpus in COUNTS:
        for c in configurations(asked.job, asked.choices, gpus):
            ledger = estimate(asked.job, c, calibration, oom_risk=0.01)
            if ledger.memory.fits:
                out.append(Priced(c, ledger, asked.job.training.sequence_length, 400.0))
    return out


def asked_problem(asked: Instance, **extra: Any) -> Any:
    problem = asked.problem(**extra)
    return replace(problem, domains=problem.domains.with_values(gpus=COUNTS))


def meets(name: str, limit: float, c: Priced) -> bool:
    value = QUANTITIES[name](c)
    return value >= limit if name.startswith("min_") else value <= limit


def surely_meets(name: str, limit: float, c: Priced) -> bool:
    """Of several stages rounding may make another the slowest, whose communication then counts as well."""
    return meets(name, limit, c) and (name != "max_communication_fraction" or c.configuration.pipeline_parallel == 1)


def test_every_limit_and_every_objective_is_compared() -> None:
    assert set(QUANTITIES) == set(SIDE)
    assert set(VALUES) == set(OBJECTIVES)
    assert set(OBJECTIVES) >= SPARING


@pytest.mark.parametrize("name", SIDE)
def test_a_limit_leaves_the_best_that_meets_it(name: str) -> None:
    compared = 0
    for seed in range(60_000, 60_000 + scaled(5, 150)):
        asked = case(seed)
        priced = fitting(seed)
        if not priced:
            continue
        values = sorted(QUANTITIES[name](c) for c in priced)
        lower, sign = name.startswith("min_"), -1 if name.startswith("min_") else 1
        limit: Any = values[len(values) // 2 if lower else len(values) // 3] * (1 + sign * SLACK)
        limit = int(limit) if name.endswith("_bytes") else limit
        problem = asked_problem(asked, limits=Limits(**{name: limit}))
        solution = solve(problem)
        loose = min((VALUES["throughput"](c) for c in priced if meets(name, limit, c)), default=None)
        tight = [VALUES["throughput"](c) for c in priced if surely_meets(name, limit * (1 - sign * SLACK / 2), c)]
        assert loose is not None
        assert solution.configuration is not None, f"seed {seed}"
        assert loose <= solution.value * (1 + 1e-12)
        assert solution.value <= min(tight, default=np.inf) + solution.rounding_seconds, f"seed {seed}"
        assert not list(broken(problem, solution.configuration))
        assert not prove(problem, solution.configuration).contradictions
        compared += 1
    assert compared >= 2


@pytest.mark.parametrize("name", OBJECTIVES)
def test_an_objective_is_as_good_as_the_best_of_all(name: str) -> None:
    compared = 0
    for seed in range(60_000, 60_000 + scaled(5, 150)):
        asked = case(seed)
        priced = fitting(seed)
        problem = asked_problem(asked, objectives=(name,))
        solution = solve(problem)
        assert (solution.configuration is None) == (not priced)
        assert not prove(problem, solution.configuration).contradictions
        if not priced:
            continue
        best = min(VALUES[name](c) for c in priced)
        slack = 1024 * 3 * (asked.job.model.num_hidden_layers + 2) if name == "memory" else best * SLACK
        assert best <= solution.value * (1 + 1e-12)
        assert solution.value <= best + slack
        compared += 1
    assert compared >= 2


def test_the_asked_risk_is_a_chance_constraint() -> None:
    """At a risk fits what the ledger says runs out of memory no more often than that, and the best of it is found."""
    calibration, differs = catalog.calibration(), 0
    for seed in range(62_000, 62_000 + scaled(12, 300)):
        asked = on_four_gpus(small(seed))
        values = {}
        for risk in 1e-4, 0.3:
            solution = solve(asked.problem(oom_risk=risk))
            best = None
            for c in configurations(asked.job, asked.choices, asked.gpus):
                ledger = estimate(asked.job, c, calibration, oom_risk=risk)
                if ledger.memory.oom_probability(risk) <= risk * (1 + 1e-9):
                    best = min(best or np.inf, ledger.time.step_seconds)
            assert (solution.configuration is None) == (best is None), f"seed {seed}"
            if best is not None:
                assert best <= solution.value * (1 + 1e-12)
                assert solution.value <= best + solution.rounding_seconds
            values[risk] = best
        differs += values[1e-4] != values[0.3]
    assert differs


def test_impossible_limits_are_infeasible() -> None:
    asked = case(60_001)
    for name in SIDE:
        hopeless: Any = {name: 1e30 if name.startswith("min_") else 1e-12}
        limits = Limits(**hopeless)
        assert solve(asked_problem(asked, limits=limits)).status == "infeasible", name
