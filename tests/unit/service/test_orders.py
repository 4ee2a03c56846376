"""Requests keep their meaning in the database: what is stored is what was asked."""

from typing import Any

import pytest

from planner.request import PlanRequest
from planner.resolve import resolve
from service.orders import FrontierOrder, PlanOrder, options_of
from service.reading import CONFIGURATION_EXAMPLE, JOB_EXAMPLE

RICH: tuple[dict[str, Any], ...] = (
    {"constraints": {"tensor_parallel": [1, 2, 4], "zero_stage": 2, "offload": "forbid", "oom_risk": 0.05}},
    {"constraints": {"pipeline_parallel": {"min": 1, "max": 4}, "max_step_seconds": 20, "precision": ["bf16", "fp8"]}},
    {"constraints": {"micro_batch_size": {"values": [1, 2]}, "gradient_compression": "lossless"}},
    {"backend": ["deepspeed", "megatron"], "objective": ["gpus", "throughput"], "objective_tolerance": 0.1},
    {"training": {**JOB_EXAMPLE["training"], "global_batch_size": {"min": 480, "max": 544}, "precision": "fp16"}},
    {"training": {**JOB_EXAMPLE["training"], "method": "lora", "lora": {"rank": 16, "target_modules": "all-linear"}}},
    {"configuration": CONFIGURATION_EXAMPLE},
    {
        "cluster": {
            "pools": [
                {
                    "device": "h100-sxm-80gb",
                    "nodes": 2,
                    "host_memory": "1TiB",
                    "inter_node_link": "400Gb/s",
                    "price_per_gpu_hour": 2.5,
                }
            ]
        }
    },
)


@pytest.mark.parametrize("changes", RICH, ids="+".join)
def test_a_stored_request_is_the_one_that_was_asked(changes: dict[str, Any]) -> None:
    request = PlanRequest.model_validate({**JOB_EXAMPLE, **changes})
    text = request.model_dump_json(exclude_unset=True)
    stored = PlanRequest.model_validate_json(text)
    # Short forms of constraints are written out: the words change, the question does not.
    assert resolve(stored).question == resolve(request).question
    assert resolve(stored).request_hash_under("") == resolve(request).request_hash_under("")


def test_what_an_order_says_beside_the_request() -> None:
    assert options_of(PlanOrder.model_validate(JOB_EXAMPLE)) == {}
    order = FrontierOrder.model_validate({**JOB_EXAMPLE, "axes": ["time", "gpus"]})
    assert options_of(order) == {"axes": ["time", "gpus"], "points": 20}
