"""Wider constraints: a request that allows more never gets a worse plan, and naming a value is permission for it."""

import copy
from functools import cache
from typing import Any

import pytest

from cost_models import catalog
from planner.constraints import DECISIONS
from planner.problem import problem_of
from planner.request import PlanRequest
from planner.resolve import resolve
from solver.problem import Problem
from solver.search import solve
from solver.solution import Solution

SLOW_LINK: dict[str, Any] = {
    "model": {
        "architecture": {
            "model_type": "llama",
            "hidden_size": 1024,
            "num_hidden_layers": 4,
            "num_attention_heads": 16,
            "intermediate_size": 2816,
            "vocab_size": 32000,
        }
    },
    "cluster": {"pools": [{"device": "h100-sxm-80gb", "nodes": 1, "gpus_per_node": 4, "intra_node_link": "1Gb/s"}]},
    "training": {"sequence_length": 1024, "global_batch_size": 8},
}
LISTS: dict[str, tuple[Any, ...]] = {
    "gradient_compression": ("none", "fp16", "bf16", "int8", "powersgd"),
    "precision": ("bf16", "fp16", "fp32", "fp8"),
    "attention": ("flash", "sdpa", "eager"),
    "cross_entropy": ("eager", "fused", "vocab_parallel"),
    "recompute": ("none", "selective", "full"),
    "zero_stage": (0, 1, 2, 3),
    "tensor_parallel": (1, 2, 4),
    "pipeline_parallel": (1, 2),
    "virtual_pipeline_stages": (1, 5),
    "recompute_interval": (1, 3),
    "micro_batch_size": (1, 2),
    **{name: (False, True) for name, decision in DECISIONS.items() if decision.kind == "flag"},
}
"""Every kind of value, on offer by default or not."""


def problem(constraints: dict[str, Any], **changes: Any) -> Problem:
    request = copy.deepcopy(SLOW_LINK) | {"constraints": constraints} | changes
    return problem_of(resolve(PlanRequest.read(request)), catalog.calibration())


@cache
def _answer(key: str, values: tuple[Any, ...]) -> Solution:
    return solve(problem({key: list(values)}))


def seconds(key: str, values: tuple[Any, ...]) -> float:
    found = _answer(key, values)
    return found.objectives[0].value if found.configuration is not None else float("inf")


@pytest.mark.parametrize("key", LISTS)
def test_a_longer_list_never_costs_time(key: str) -> None:
    values = LISTS[key]
    alone = [seconds(key, (value,)) for value in values]
    for size in range(2, len(values) + 1):
        assert seconds(key, values[:size]) == pytest.approx(min(alone[:size]), rel=1e-9), values[:size]
    assert seconds(key, tuple(reversed(values))) == seconds(key, values)


def test_lossy_differs_from_lossless_where_communication_is_slow() -> None:
    lossless, lossy, named = (
        solve(problem({"gradient_compression": wish}, backend="ddp"))
        for wish in ("lossless", "lossy", ["none", "powersgd"])
    )
    assert lossless.configuration is not None
    assert lossy.configuration is not None
    assert named.configuration is not None
    assert lossless.configuration.gradient_compression == "none"
    assert lossy.configuration.gradient_compression != "none"
    assert named.configuration.gradient_compression == "powersgd"
    assert lossy.objectives[0].value < lossless.objectives[0].value


@pytest.mark.parametrize(
    ("key", "forbidden", "left"),
    [
        ("gradient_compression", ["bf16"], ("none",)),
        ("precision", ["bf16"], ("fp16",)),
        ("precision", ["fp32"], ("bf16",)),
        ("zero_stage", [3], (0, 1, 2)),
        ("cuda_graph", [True], (False,)),
        ("cuda_graph", [False], (True,)),
    ],
)
def test_forbidding_takes_away_and_permits_nothing(key: str, forbidden: list[Any], left: tuple[Any, ...]) -> None:
    assert problem({key: {"forbid": forbidden}}).resolved_domains[key] == left


def test_a_forbidden_degree_is_not_used() -> None:
    found = solve(problem({"data_parallel": {"forbid": [4, 2]}}, backend="megatron"))
    assert found.configuration is not None
    assert found.configuration.data_parallel == 1


def test_two_wishes_on_one_decision_leave_what_both_leave() -> None:
    asked = problem({"activation_offload": [True, False], "offload": "forbid"})
    assert asked.resolved_domains["activation_offload"] == (False,)


def test_a_precision_that_the_solver_chooses_is_not_assumed() -> None:
    def assumed(constraints: dict[str, Any]) -> list[str]:
        resolved = resolve(PlanRequest.read(copy.deepcopy(SLOW_LINK) | {"constraints": constraints}))
        return [str(a.value) for a in resolved.assumptions if a.key == "training.precision"]

    assert assumed({}) == ["bf16"]
    assert assumed({"precision": ["bf16", "fp8"]}) == []
    assert assumed({"precision": {"forbid": ["bf16"]}}) == ["fp16"]


def test_a_stated_precision_stays_within_a_list_that_has_more() -> None:
    training = SLOW_LINK["training"] | {"precision": "bf16"}
    assert problem({"precision": ["bf16", "fp8"]}, training=training).resolved_domains["precision"] == ("bf16",)
