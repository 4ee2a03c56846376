"""The `request` of a plan asks the same again, of the planner and of the service."""

import json
from pathlib import Path

import pytest

from cost_models import catalog
from cost_models.errors import SpecError
from planner.plan import Plan
from planner.request import PlanRequest, load_request
from planner.resolve import ResolvedRequest, resolve
from service.orders import Order
from tests.contracts.tree import ROOT
from tests.unit.executor.plans import feasible

EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.yaml"))
LINKED = {
    "model": "llama-2-7b",
    "cluster": {
        "pools": [{"device": "a100-sxm-80gb", "nodes": 2}, {"device": "h100-sxm-80gb", "price_per_gpu_hour": 3}],
        "between_pools": "100Gb/s",
    },
    "training": {"sequence_length": 4096, "global_batch_size": {"min": 96, "max": 128}, "precision": "auto"},
    "backend": ["megatron", "deepspeed"],
    "objective": ["throughput", "memory"],
    "constraints": {"offload": "forbid", "tensor_parallel": {"max": 8}, "precision": ["bf16", "fp16"]},
}


def identity(resolved: ResolvedRequest) -> str:
    return resolved.request_hash(catalog.calibration())


@pytest.mark.parametrize("asked", [*EXAMPLES, LINKED], ids=lambda asked: getattr(asked, "stem", "linked"))
@pytest.mark.parametrize("reader", [PlanRequest, Order])
def test_the_request_of_a_plan_is_a_request(asked: Path | dict[str, object], reader: type[PlanRequest]) -> None:
    data = load_request(asked) if isinstance(asked, Path) else asked
    first = resolve(PlanRequest.read(data))
    stored = json.loads(first.question.model_dump_json())
    again = resolve(reader.read(stored))
    assert identity(again) == identity(first)
    assert again.question == first.question


def test_so_is_the_one_of_a_stored_plan() -> None:
    plan: Plan = feasible()
    again = resolve(PlanRequest.read(json.loads(plan.to_json())["request"]))
    assert again.question == plan.request


def test_what_is_wrong_with_it_is_said() -> None:
    stored = json.loads(feasible().to_json())["request"]
    stored["backends"] = ["abacus"]
    with pytest.raises(SpecError, match="deepspeed"):
        PlanRequest.read(stored)
