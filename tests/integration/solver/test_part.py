"""A part of one pool: where the batch divides badly over the whole, a smaller number of devices is found and said."""

from dataclasses import replace
from typing import Any

import pytest

from cost_models import catalog
from planner.certifying import issue
from planner.planning import plan
from planner.problem import problem_of
from planner.request import PlanRequest
from planner.resolve import resolve
from planner.verifying import verify
from solver.conflicts import explain
from solver.feasibility import feasible
from solver.part import better_divided
from solver.problem import Problem, device_counts
from solver.search import solve


def request(gpus: int, batch: Any, **changes: Any) -> PlanRequest:
    model = {
        "hidden_size": 2048, "num_hidden_layers": 12, "num_attention_heads": 16, "intermediate_size": 5632,
        "vocab_size": 32000,
    }  # fmt: skip
    return PlanRequest.read(
        {
            "model": {"architecture": model},
            "cluster": {"pools": [{"device": "a100-sxm-80gb", "nodes": gpus // 4, "gpus_per_node": 4}]},
            "training": {"sequence_length": 2048, "global_batch_size": batch},
            "backend": "megatron",
            **changes,
        }
    )


def problem(gpus: int, batch: Any, **changes: Any) -> Problem:
    return problem_of(resolve(request(gpus, batch, **changes)), catalog.calibration())


@pytest.mark.parametrize(
    ("gpus", "batch", "counts"),
    [
        (16, 64, ()),
        (12, 8, (8,)),
        (20, 16, (16,)),
        (28, 12, (12, 24)),
        (12, {"min": 8, "max": 12}, ()),
    ],
)
def test_only_numbers_that_the_batch_divides_better_are_asked_about(gpus: int, batch: Any, counts: Any) -> None:
    assert better_divided(problem(gpus, batch)) == counts


@pytest.mark.parametrize(("gpus", "batch"), [(12, 8), (20, 16), (28, 8), (28, 12), (36, 64), (44, 20)])
def test_the_best_part_is_the_best_of_all_numbers(gpus: int, batch: int) -> None:
    asked = problem(gpus, batch)
    every = replace(asked, domains=asked.domains.with_values(gpus=device_counts(asked.job)))
    found, best = solve(asked), solve(every)
    assert found.status == best.status == "optimal"
    assert found.value == best.value
    assert set(found.gpus_considered) <= {*better_divided(asked), gpus}


def test_a_part_that_is_faster_is_planned_said_and_certified() -> None:
    found = plan(request(20, 16))
    assert found.configuration is not None
    assert found.configuration.world_size == 16
    assert "4 of 20 GPUs stay idle: the batch divides better over 16" in found.warnings
    checks = verify(issue(found, catalog.calibration()).to_json(), catalog.calibration())
    assert [fault for check in checks for fault in check.faults] == []


def test_a_number_that_is_asked_for_is_kept() -> None:
    found = solve(problem(20, 16, constraints={"min_gpus": 20}))
    assert found.configuration is not None
    assert found.configuration.world_size == 20


def test_a_batch_that_the_whole_cannot_split_is_planned_on_a_part() -> None:
    found = plan(request(20, 16, constraints={"data_parallel": 16, "tensor_parallel": 1}))
    assert found.configuration is not None
    assert found.configuration.world_size == 16


PART_ONLY = {"data_parallel": 16, "tensor_parallel": 1, "pipeline_parallel": 1, "context_parallel": 1}


@pytest.mark.parametrize("limit", ["max_step_seconds", "max_energy_per_step"])
def test_a_limit_that_only_a_part_could_meet_is_the_conflict_and_moves_to_the_least_that_works(limit: str) -> None:
    asked = problem(20, 16, constraints={**PART_ONLY, limit: 1e-4})
    assert solve(asked).configuration is None
    found = explain(asked)
    assert [demand.resource for demand in found.conflict] == [limit]
    (moved,) = found.limits
    assert isinstance(moved.value, float)
    assert found.nearest_miss is not None
    assert found.nearest_miss.configuration.world_size == 16
    assert found.forbidden == ()
    for factor, fits in ((1.0, True), (0.98, False)):
        there = problem(20, 16, constraints={**PART_ONLY, limit: factor * moved.value})
        assert (solve(there).configuration is not None) == fits


@pytest.mark.parametrize("batch", [8, 16])
def test_feasible_where_a_part_is(batch: int) -> None:
    asked = problem(20, batch, constraints={**PART_ONLY, "data_parallel": batch})
    assert bool(feasible(asked)) == (solve(asked).configuration is not None)


def test_memory_that_lacks_on_a_part_has_a_nearest_miss_there() -> None:
    asked = problem(20, 16, constraints={**PART_ONLY, "max_memory_bytes": "100MiB"})
    found = explain(asked)
    assert [demand.text for demand in found.conflict] == ["max_memory_bytes: 100MiB"]
    assert found.nearest_miss is not None
    assert found.nearest_miss.configuration.world_size == 16


def test_objectives_after_the_first_see_the_part_too() -> None:
    found = solve(problem(20, 16, objective=["throughput", "memory"]))
    assert found.status == "optimal"
    assert found.value == solve(problem(20, 16)).value
