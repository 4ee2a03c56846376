"""Batches that may vary: the optimum with few of the numbers of micro-batches equals the optimum with all."""

from dataclasses import replace

import pytest

from cost_models.job import Job
from cost_models.specs.training import TrainingSpec
from solver.dominance import Pruning
from solver.problem import Problem
from solver.search import solve
from tests.oracle.instances import instance
from tests.scale import scaled


def ranged(seed: int, objective: str) -> Problem:
    """An instance whose batch may vary, with every number of micro-batches on offer."""
    problem = instance(seed).problem(objectives=(objective,))
    training = TrainingSpec.read(
        problem.job.training.model_dump() | {"global_batch_size": {"min": 3 + seed % 5, "max": 12 + seed % 9}}
    )
    domains = problem.domains.with_values(gradient_accumulation_steps=None, virtual_pipeline_stages=(1, 2, 3))
    job = Job(model=problem.job.model, cluster=problem.job.cluster, training=training)
    return replace(problem, job=job, domains=domains)


@pytest.mark.parametrize("objective", ["throughput", "memory"])
@pytest.mark.parametrize("seed", range(scaled(12, 300)))
def test_dropping_numbers_of_micro_batches_never_changes_the_optimum(seed: int, objective: str) -> None:
    problem = ranged(seed, objective)
    some, every = solve(problem), solve(problem, pruning=Pruning(accumulation=False))
    assert some.status == every.status
    assert some.candidates.legal <= every.candidates.legal
    if some.configuration is not None:
        assert [v.value for v in some.objectives] == [v.value for v in every.objectives]


def test_a_rule_of_the_reduction_applies() -> None:
    problem = ranged(1, "throughput")
    assert solve(problem).candidates.legal < solve(problem, pruning=Pruning(accumulation=False)).candidates.legal
