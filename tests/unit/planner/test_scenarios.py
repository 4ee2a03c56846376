"""What an estimate leaves to its framework comes with every value that it may take."""

from typing import Any

import pytest

from planner.planning import estimate
from planner.request import PlanRequest
from planner.scenarios import OPEN_INPUTS


def asked(configuration: dict[str, Any] | None = None, **training: Any) -> dict[str, Any]:
    request = {
        "model": {"preset": "llama-2-7b"},
        "cluster": {"pools": [{"device": "a100-sxm-80gb", "nodes": 1}]},
        "training": {"sequence_length": 2048, "global_batch_size": 8, **training},
        "configuration": {"backend": "deepspeed", "zero_stage": 3, "data_parallel": 8, **(configuration or {})},
    }
    plan = estimate(PlanRequest.read(request))
    assert plan.prediction is not None
    found = {a.key: a for a in plan.assumptions if a.key in OPEN_INPUTS}
    return {"plan": plan, "device": plan.prediction.memory.device.median_bytes, **found}


def test_open_inputs_have_scenarios_that_hold_the_priced_one() -> None:
    found = asked()
    assert {key for key in found if key in OPEN_INPUTS} == set(OPEN_INPUTS)
    for key in ("configuration.attention", "configuration.cross_entropy"):
        assumption = found[key]
        sizes = {case["value"]: case["device_bytes"] for case in assumption.scenarios}
        # Reserved is replayed there: the flat copies of DeepSpeed's step fit into nothing that backward has freed.
        assert sizes[assumption.value] == pytest.approx(found["device"], rel=0.12)
        assert assumption.spread == pytest.approx(max(sizes.values()) / min(sizes.values()) - 1, rel=1e-4)


def test_what_is_stated_has_none() -> None:
    found = asked({"attention": "flash", "cross_entropy": "fused"}, state_precision="mixed")
    assert not [key for key in found if key in OPEN_INPUTS]


def test_a_scenario_carries_its_own_verdict() -> None:
    cases = asked({"micro_batch_size": 1}, sequence_length=8192)["configuration.attention"].scenarios
    assert {case["value"]: case["verdict"] for case in cases} == {
        "flash": "fits", "sdpa": "fits", "eager": "does_not_fit",
    }  # fmt: skip


def test_adapters_leave_no_layout_of_the_optimizer_open() -> None:
    assert "training.state_precision" not in asked(method="lora")
