"""What is allowed more never fares worse: memory, devices, choices, batches, limits, risk."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cost_models.specs.training import BatchRange
from solver.problem import Limits, Problem
from solver.search import solve
from tests.oracle.instances import Instance, instance
from tests.scale import scaled

GIB = 2**30


def _pool(problem: Problem, **changes: Any) -> Problem:
    pool = problem.job.pool.model_copy(update=changes)
    cluster = problem.job.cluster.model_copy(update={"pools": (pool,)})
    return replace(problem, job=replace(problem.job, cluster=cluster))


def more_device_memory(case: Instance, problem: Problem) -> Problem:
    device = problem.job.device
    more = min(device.usable_memory_bytes + 4 * GIB, device.total_memory_bytes)
    return _pool(problem, device=device.model_copy(update={"usable_memory_bytes": more}))


def more_host_memory(case: Instance, problem: Problem) -> Problem:
    return _pool(problem, host_memory_bytes=problem.job.pool.host_memory_bytes + 64 * GIB)


def more_risk(case: Instance, problem: Problem) -> Problem:
    return replace(problem, oom_risk=0.2)


def more_devices_as_an_option(case: Instance, problem: Problem) -> Problem:
    counts = tuple(n for n in (1, 2, 4) if n <= case.gpus)
    return replace(problem, domains=problem.domains.with_values(gpus=counts))


def longer_batch_range(case: Instance, problem: Problem) -> Problem:
    batch = problem.job.training.batch_range
    wider = BatchRange(min=batch.min, max=batch.max + 2)
    training = problem.job.training.model_copy(update={"global_batch_size": wider})
    return replace(problem, job=replace(problem.job, training=training))


def one_limit_less(case: Instance, problem: Problem) -> Problem:
    return replace(problem, limits=Limits())


def wider_choices(case: Instance, problem: Problem) -> Problem:
    widest = {"zero_stage": (0, 1, 2, 3), "micro_batch_size": (1, 2, 4), "pipeline_parallel": (1, 2, 4)}
    widest |= {"tensor_parallel": (1, 2, 4), "recompute_interval": (1, 2), "virtual_pipeline_stages": (1, 2)}
    return replace(problem, domains=problem.domains.with_values(**widest))


WIDENINGS: tuple[Callable[[Instance, Problem], Problem], ...] = (
    more_device_memory,
    more_host_memory,
    more_risk,
    more_devices_as_an_option,
    longer_batch_range,
    one_limit_less,
    wider_choices,
)


def per_sequence(problem: Problem) -> float | None:
    """Seconds of a sequence at the optimum."""
    found = solve(problem)
    if found.configuration is None:
        return None
    batch = problem.job.training.batch_range
    return found.value / (1 if batch.min != batch.max else batch.max)


@pytest.mark.parametrize("widened", WIDENINGS, ids=lambda widened: widened.__name__)
def test_the_optimum_never_gets_worse(widened: Callable[[Instance, Problem], Problem]) -> None:
    compared = better = 0
    for seed in range(95_000, 95_000 + scaled(11, 600)):
        case = instance(seed)
        problem = case.problem(limits=Limits(max_memory_bytes=12 * GIB), alternatives=0)
        narrow, wide = per_sequence(problem), per_sequence(widened(case, problem))
        if narrow is None:
            continue
        assert wide is not None, f"seed {seed}"
        assert wide <= narrow * (1 + 1e-12), f"seed {seed}"
        compared += 1
        better += wide < narrow
    assert compared >= 2


@pytest.mark.parametrize("objective", ["memory", "cost", "energy"])
def test_more_devices_as_an_option_never_cost_more(objective: Any) -> None:
    for seed in range(96_000, 96_000 + scaled(5, 300)):
        case = instance(seed)
        problem = case.problem(objectives=(objective,), alternatives=0)
        problem = _pool(problem, device=problem.job.device.model_copy(update={"tdp_watts": 300.0}))
        narrow, wide = solve(problem), solve(more_devices_as_an_option(case, problem))
        if narrow.configuration is not None:
            assert wide.configuration is not None, f"seed {seed}"
            assert wide.value <= narrow.value, f"seed {seed}"
