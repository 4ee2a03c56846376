"""Every preset, and an architecture that nobody has named, resolves and is priced."""

from typing import Any

import pytest

from cost_models import catalog
from planner.planning import estimate
from planner.request import PlanRequest
from planner.resolve import resolve

UNNAMED = {
    "architectures": ["FooForCausalLM"],
    "model_type": "foo",
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "vocab_size": 50000,
}


def _request(model: dict[str, Any]) -> PlanRequest:
    pools = [{"device": "h100-sxm-80gb", "nodes": 64, "gpus_per_node": 8}]
    training = {"sequence_length": 512, "global_batch_size": 4096}
    return PlanRequest.read({"model": model, "cluster": {"pools": pools}, "training": training})


@pytest.mark.parametrize("name", catalog.models())
def test_every_preset_resolves(name: str) -> None:
    assert resolve(_request({"preset": name})).job.model.num_hidden_layers > 0


@pytest.mark.parametrize("model_type", sorted({catalog.model(name).model_type for name in catalog.models()}))
def test_one_preset_of_every_family_is_priced(model_type: str) -> None:
    name = next(n for n in catalog.models() if catalog.model(n).model_type == model_type)
    request = _request({"preset": name}).model_dump(mode="json", by_alias=True, exclude_unset=True)
    request |= {"configuration": {"backend": {"name": "fsdp"}, "zero_stage": 3, "data_parallel": 512}}
    plan = estimate(PlanRequest.read(request))
    assert plan.prediction is not None
    assert plan.prediction.memory.allocated.median_bytes > 0
    assert plan.prediction.time.step_seconds > 0


def test_an_unnamed_architecture_says_what_was_taken_for_granted() -> None:
    resolved = resolve(_request({"config": UNNAMED}))
    stated = {assumption.key: assumption for assumption in resolved.assumptions}
    assert any(key.startswith("model.") for key in stated)
    assert all(a.value != "" and a.from_ for key, a in stated.items() if key.startswith("model."))
