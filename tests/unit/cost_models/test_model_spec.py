"""Bounds and rules of `ModelSpec`, however it is made."""

from typing import Any

import pytest

from cost_models.errors import SpecError
from cost_models.specs.model import LayerKind, ModelSpec

SIZES: dict[str, Any] = {
    **{"hidden_size": 96, "intermediate_size": 200, "num_hidden_layers": 3, "num_attention_heads": 6},
    **{"num_key_value_heads": 2, "head_dim": 16, "vocab_size": 331},
}
MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 10}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": 0}, "^hidden_size: "),
        ({"hidden_size": "96"}, "^hidden_size: "),
        ({"hidden_size": True}, "^hidden_size: "),
        ({"vocab_size": float("nan")}, "^vocab_size: "),
        ({"hidden_size": 10**12}, "^hidden_size: .*134217728"),
        ({"num_hidden_layers": 10**9}, "^num_hidden_layers: .*10000"),
        ({"hidden": 96}, "^hidden: unknown key; "),
        ({"num_key_value_heads": 4}, "num_key_value_heads 4 does not divide num_attention_heads 6"),
        ({"layers": [{"mlp": "dense"}]}, "layers lists 1 kinds but num_hidden_layers is 3"),
        ({"layers": [{"mlp": "moe"}] * 3}, "layers names a moe layer but moe is missing"),
        ({"moe": MOE | {"num_experts_per_tok": 5}}, "num_experts_per_tok 5 exceeds num_experts 4"),
    ],
)
def test_a_broken_rule_is_one_line(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        ModelSpec.read(SIZES | change)
    assert "\n" not in str(caught.value)


def test_layers_default_to_one_kind() -> None:
    assert ModelSpec.read(SIZES).layer_sequence == (LayerKind(),) * 3
    assert ModelSpec.read(SIZES | {"moe": MOE}).layer_kinds == (LayerKind(mlp="moe"),)


def test_kinds_are_in_order_of_first_appearance() -> None:
    kinds = [{"attention": "sliding"}, {"attention": "full"}, {"attention": "sliding"}]
    spec = ModelSpec.read(SIZES | {"layers": kinds, "sliding_window": 8})
    assert [kind.attention for kind in spec.layer_kinds] == ["sliding", "full"]


def test_a_spec_survives_json() -> None:
    spec = ModelSpec.read(SIZES | {"moe": MOE})
    assert ModelSpec.model_validate_json(spec.model_dump_json()) == spec
