"""Objectives, lists of them and side constraints against brute force."""

from dataclasses import replace

import pytest

from cost_models import catalog
from cost_models.job import Job
from cost_models.memory import memory_ledger
from cost_models.specs.training import BatchRange
from cost_models.time import time_ledger
from solver.problem import Limits
from solver.search import solve
from tests.oracle.brute_force import best_step, configurations, least_memory
from tests.oracle.instances import Instance, instance
from tests.scale import scaled

KIB = 1024


def small(seed: int) -> Instance:
    """An instance with few choices beside the layout, as every configuration is priced in full."""
    case = instance(seed)
    pinned = ("micro_batch_size", "sequence_parallel", "zero_stage")
    one = {key: values[-1:] for key, values in case.choices.items() if key in pinned}
    return replace(case, choices={**case.choices, **one})


def on_four_gpus(case: Instance) -> Instance:
    """The job on one node of four devices."""
    pool = case.job.pool.model_copy(update={"nodes": 1, "gpus_per_node": 4})
    cluster = case.job.cluster.model_copy(update={"pools": (pool,)})
    return replace(case, job=Job(model=case.job.model, training=case.job.training, cluster=cluster))


@pytest.mark.parametrize("seed", range(scaled(8, 120)))
def test_least_memory_then_fastest(seed: int) -> None:
    case = small(seed)
    calibration = catalog.calibration()
    least = least_memory(case.job, case.choices, calibration, case.gpus)
    solution = solve(case.problem(objectives=("memory",)))
    assert (solution.status == "infeasible") == (least is None)
    if least is None:
        return
    assert [o.name for o in solution.objectives] == ["memory", "throughput"]
    assert least <= solution.value * (1 + 1e-12)
    coefficients = 3 * (case.job.model.num_hidden_layers + 2)
    assert solution.value <= least + KIB * coefficients, "rounding adds at most one KiB per coefficient used"
    ledgers = [
        (memory_ledger(case.job, c, calibration, oom_risk=0.01), time_ledger(case.job, c, calibration))
        for c in configurations(case.job, case.choices, case.gpus)
    ]
    lean = [time.step_seconds for memory, time in ledgers if memory.fits and memory.allocated_bytes <= solution.value]
    assert min(lean) <= solution.objectives[1].value + 1e-12
    sure = [
        time.step_seconds
        for memory, time in ledgers
        if memory.fits and memory.allocated_bytes + KIB * coefficients <= solution.value
    ]
    assert solution.objectives[1].value <= min(sure, default=float("inf")) + solution.rounding_seconds


@pytest.mark.parametrize("seed", range(scaled(8, 100)))
def test_fewest_gpus_within_a_deadline_then_fastest(seed: int) -> None:
    case = instance(1000 + seed)
    calibration, counts = catalog.calibration(), (1, 2, 4)
    case = on_four_gpus(case)
    job = case.job
    by_count = {n: best_step(job, case.choices, calibration, n)[0] for n in counts}
    times = sorted(best.value for best in by_count.values() if best is not None)
    deadline = times[len(times) // 2] * 1.001 if times else 1.0
    problem = case.problem(objectives=("gpus",), limits=Limits(max_step_seconds=deadline))
    problem = replace(problem, domains=problem.domains.with_values(gpus=counts))
    solution = solve(problem)
    meets = [n for n, best in by_count.items() if best is not None and best.value <= deadline]
    assert (solution.status == "infeasible") == (not meets)
    if meets:
        fastest = by_count[min(meets)]
        assert fastest is not None
        assert solution.value == min(meets)
        assert fastest.value <= solution.objectives[1].value <= fastest.value + solution.rounding_seconds


@pytest.mark.parametrize("seed", range(scaled(8, 100)))
def test_cheapest_step_over_device_counts(seed: int) -> None:
    case = instance(2000 + seed)
    case = on_four_gpus(case)
    job = case.job
    bests = {n: best_step(job, case.choices, catalog.calibration(), n)[0] for n in (1, 2, 4)}
    costs = [n * best.value * 2.0 / 3600 for n, best in bests.items() if best is not None]
    problem = case.problem(objectives=("cost",))
    solution = solve(replace(problem, domains=problem.domains.with_values(gpus=(1, 2, 4))))
    assert (solution.status == "infeasible") == (not costs)
    if costs:
        assert min(costs) * (1 - 1e-12) <= solution.value <= min(costs) + solution.rounding_seconds * 4 * 2.0 / 3600


@pytest.mark.parametrize("seed", range(scaled(8, 100)))
def test_a_batch_in_a_range_is_compared_per_sequence(seed: int) -> None:
    case = instance(3000 + seed)
    training = case.job.training.model_copy(update={"global_batch_size": BatchRange(min=3, max=7)})
    job = Job(model=case.job.model, cluster=case.job.cluster, training=training)
    case = replace(case, job=job)
    best, _ = best_step(job, case.choices, catalog.calibration(), case.gpus, per_sequence=True)
    solution = solve(case.problem())
    assert (solution.status == "infeasible") == (best is None)
    if best is not None and solution.configuration is not None:
        assert 3 <= solution.configuration.global_batch_size <= 7
        assert best.value * (1 - 1e-12) <= solution.value <= best.value + solution.rounding_seconds
