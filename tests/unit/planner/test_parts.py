"""Ladders and frontiers put together from rungs that were made apart are those that are made in one."""

from typing import Any

import pytest

from cost_models.errors import BrokenRule
from planner import parts
from planner.frontier import Frontier, Ladder, frontier, ladder
from planner.fronts import Axes
from planner.request import PlanRequest

SMALL: dict[str, Any] = {
    "model": {"preset": "gpt2"},
    "cluster": {"pools": [{"device": "a100-sxm-80gb", "nodes": 1, "gpus_per_node": 4, "price_per_gpu_hour": 2.0}]},
    "training": {"sequence_length": 1024, "global_batch_size": 8},
}
TIGHT: dict[str, Any] = {
    "model": {"preset": "llama-2-7b"},
    "cluster": {"pools": [{"device": "rtx-4090", "nodes": 1, "gpus_per_node": 8, "price_per_gpu_hour": 0.4}]},
    "training": {"sequence_length": 2048, "global_batch_size": 16},
    "backend": "deepspeed",
    "constraints": {"offload": "forbid"},
}
"""Too few devices do not hold it."""


def same(one: Ladder | Frontier, other: Ladder | Frontier) -> bool:
    return one.model_dump(exclude={"envelope"}) == other.model_dump(exclude={"envelope"})


@pytest.mark.parametrize("job", [SMALL, TIGHT])
def test_a_ladder_of_its_rungs(job: dict[str, Any]) -> None:
    request = PlanRequest.model_validate(job)
    whole = ladder(request, 1, 8 if job is TIGHT else None)
    counts = parts.ladder_parts(request, 1, 8 if job is TIGHT else None)
    assert counts == tuple(rung.gpus for rung in whole.rungs)
    rungs = [ladder(request, count, count) for count in reversed(counts)]
    made = parts.ladder_of(rungs, request, 1, 8 if job is TIGHT else None)
    assert same(made, whole)
    assert made.envelope.solve_seconds >= sum(rung.envelope.solve_seconds for rung in rungs)
    if job is TIGHT:
        assert {rung.status for rung in whole.rungs} == {"optimal", "infeasible"}


@pytest.mark.parametrize(("axes", "points"), [(("time", "gpus"), 20), (("time", "cost"), 20), (("time", "gpus"), 2)])
def test_a_frontier_of_rungs(axes: Axes, points: int) -> None:
    request = PlanRequest.model_validate(SMALL)
    rungs = [ladder(request, count, count) for count in parts.frontier_parts(request, axes, points)]
    assert len(rungs) == 4
    assert same(parts.frontier_of(rungs, request, axes, points), frontier(request, axes, points))


def test_points_that_depend_on_one_another_are_no_parts() -> None:
    assert parts.frontier_parts(PlanRequest.model_validate(SMALL), ("time", "memory"), 20) == ()


def test_what_has_no_frontier_is_refused() -> None:
    with pytest.raises(BrokenRule, match="points 1"):
        parts.frontier_parts(PlanRequest.model_validate(SMALL), ("time", "gpus"), 1)
