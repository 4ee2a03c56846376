"""Micro-batches that no device holds: the optimum without them, and what they need when priced row by row."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.stress import drawn
from cost_models.job import Job
from cost_models.specs.training import TrainingSpec
from planner import calibrations
from planner.problem import problem_of
from planner.request import PlanRequest
from planner.resolve import resolve
from solver import ceilings, shortfall
from solver.caps import caps
from solver.dominance import Pruning, reduced
from solver.feasibility import feasible
from solver.problem import Limits, Problem
from solver.rows import Rows, may_fit, priced_rows, prices, with_memory
from solver.search import solve
from solver.shortfall import least_shortfall
from solver.space import BackendSpace, BoolArray, every_topology, rows_of, spaces
from tests.oracle.instances import instance
from tests.scale import scaled

SAMPLE = 1500


def ranged(seed: int, objective: str = "throughput") -> Problem:
    """An instance whose batch may vary widely, with every split on offer and little more memory than the leanest."""
    problem = instance(seed).problem(objectives=(objective,))
    batch = {"global_batch_size": {"min": 16 + seed % 5, "max": 32 + seed % 7}}
    training = TrainingSpec.read(problem.job.training.model_dump() | batch)
    domains = problem.domains.with_values(gradient_accumulation_steps=None, micro_batch_size=None)
    job = Job(model=problem.job.model, cluster=problem.job.cluster, training=training)
    problem = replace(problem, job=job, domains=domains)
    leanest = solve(replace(problem, objectives=("memory",)), pruning=Pruning(ceilings=False))
    if leanest.configuration is None:
        return problem
    return replace(problem, limits=Limits(max_memory_bytes=int(leanest.value * (1.02 + seed % 3 / 5))))


def _restored(space: BackendSpace, kept: BackendSpace) -> BoolArray:
    """The rows of a reduced space in their places of the whole one."""
    keys = [list(zip(*(c.tolist() for c in at.topologies.values()), strict=True)) for at in (space, kept)]
    place, legal = {key: i for i, key in enumerate(keys[0])}, np.zeros_like(space.legal)
    legal[[place[key] for key in keys[1]]] = kept.legal
    return legal


def dropped(problem: Problem) -> tuple[int, int]:
    """How many rows are left out, and how many of a sample of them pass the memory test after all."""
    at = reduced(problem, spaces(problem), Pruning())
    kept = ceilings.below_ceilings(problem, prices(None), at, caps(problem))
    out = tuple(replace(a, legal=a.legal & ~_restored(a, k)) for a, k in zip(at, kept, strict=True))
    space, topology, feature = rows_of(out, *every_topology(out))
    if not len(space):
        return 0, 0
    some = np.unique(np.linspace(0, len(space) - 1, SAMPLE).astype(int))
    rows = priced_rows(problem, prices(None), out, space[some], topology[some], feature[some])
    memory, least = with_memory(problem, prices(None), rows, caps(problem))
    return len(space), int(may_fit(problem, rows, memory, least).sum())


@pytest.fixture(autouse=True)
def small_questions_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "MANY", 0)


@pytest.mark.parametrize("objective", ["throughput", "memory"])
@pytest.mark.parametrize("seed", range(scaled(6, 200)))
def test_the_optimum_is_the_same(seed: int, objective: str) -> None:
    problem = ranged(seed, objective)
    some, every = solve(problem), solve(problem, pruning=Pruning(ceilings=False))
    assert (some.status, some.configuration) == (every.status, every.configuration)
    assert some.objectives == every.objectives
    assert some.candidates.legal == every.candidates.legal


def test_rows_are_left_out_of_small_instances() -> None:
    assert sum(dropped(ranged(seed))[0] for seed in range(6)) > 100


@pytest.mark.parametrize("seed", range(scaled(6, 100)))
def test_whether_there_is_a_plan_is_the_same(seed: int) -> None:
    problem = ranged(seed)
    assert bool(feasible(problem)) == bool(feasible(problem, pruning=Pruning(ceilings=False)))


@pytest.mark.parametrize("seed", range(scaled(12, 100)))
def test_what_is_left_out_fits_nowhere(seed: int) -> None:
    request = drawn(seed)
    request["training"]["global_batch_size"] = {"min": 96, "max": 108}
    request["cluster"]["pools"][0]["nodes"] = 1 + seed % 4
    problem = problem_of(resolve(PlanRequest.model_validate(request)), calibrations.current())
    assert dropped(problem)[1] == 0


def short(seed: int) -> Problem:
    """A request whose batch may vary widely on devices that hold a tenth, and every other one on nodes of as much."""
    request = drawn(seed)
    request["training"]["global_batch_size"] = {"min": 24, "max": 40}
    request["cluster"]["pools"][0]["nodes"] = 1
    problem = problem_of(resolve(PlanRequest.model_validate(request)), calibrations.current())
    pool, job = problem.job.pool, problem.job
    device = pool.device.model_copy(update={"usable_memory_bytes": pool.device.usable_memory_bytes // 10})
    host = pool.host_memory_bytes // (10 if seed % 2 else 1)
    pool = pool.model_copy(update={"device": device, "host_memory_bytes": host})
    cluster = job.cluster.model_copy(update={"pools": (pool,)})
    return replace(problem, job=Job(model=job.model, cluster=cluster, training=job.training))


@pytest.mark.parametrize("leanest", [False, True])
@pytest.mark.parametrize("seed", range(scaled(6, 14)))
def test_the_nearest_miss_is_the_same(seed: int, leanest: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = short(seed)
    every = least_shortfall(problem, host_memory=not leanest, leanest=leanest, pruning=Pruning(ceilings=False))
    monkeypatch.setattr(shortfall, "MEMORY_CHUNK", 997)
    some = least_shortfall(problem, host_memory=not leanest, leanest=leanest)
    assert (some and some.missing_bytes) == (every and every.missing_bytes)


def test_the_nearest_miss_is_told_from_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rows priced: a tenth where those of the smallest micro-batch have told what is lacking."""
    priced: list[int] = []

    def counted(*args: Any) -> Rows:
        priced.append(len(args[-1]))
        return priced_rows(*args)

    monkeypatch.setattr(shortfall, "priced_rows", counted)
    problem = short(0)
    assert least_shortfall(problem) is not None
    some = sum(priced)
    least_shortfall(problem, pruning=Pruning(ceilings=False))
    assert 10 * some < sum(priced) - some
