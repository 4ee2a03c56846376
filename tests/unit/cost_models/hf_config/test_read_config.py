"""Spellings, nested configs, layer kinds and assumptions of `read_config`."""

from typing import Any

import pytest

from cost_models.errors import BrokenRule, MissingKey, SpecError
from cost_models.hf_config import read_config
from cost_models.hf_config.registry import FAMILIES, READERS
from cost_models.parameters import total_parameters

SIZES: dict[str, Any] = {
    **{"hidden_size": 96, "intermediate_size": 200, "num_hidden_layers": 6, "num_attention_heads": 6},
    **{"num_key_value_heads": 2, "vocab_size": 331},
}
LLAMA = {"model_type": "llama", **SIZES}


def test_v4_and_v5_spellings_are_the_same_model() -> None:
    v4 = read_config({**LLAMA, "torch_dtype": "bfloat16", "rope_theta": 5e5})
    v5 = read_config({**LLAMA, "dtype": "bfloat16", "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}})
    assert v4 == v5
    assert (v4.dtype, v4.rope_theta) == ("bfloat16", 5e5)


def test_rope_theta_per_attention_kind_is_that_of_full_attention() -> None:
    rope = {"sliding_attention": {"rope_theta": 1e4}, "full_attention": {"rope_theta": 1e6}}
    assert read_config({"model_type": "gemma3_text", **SIZES, "rope_parameters": rope}).rope_theta == 1e6


def test_v4_sliding_pattern_and_v5_layer_types_are_the_same_model() -> None:
    kinds = ["sliding_attention"] * 2 + ["full_attention"]
    v4 = read_config({"model_type": "gemma3_text", **SIZES, "sliding_window_pattern": 3})
    v5 = read_config({"model_type": "gemma3_text", **SIZES, "layer_types": kinds * 2})
    assert v4 == v5
    assert [kind.attention for kind in v4.layer_sequence] == ["sliding", "sliding", "full"] * 2


@pytest.mark.parametrize(
    ("config", "window", "kinds"),
    [
        ({"model_type": "mistral", "sliding_window": None}, None, ["full"] * 6),
        ({"model_type": "mistral", "sliding_window": 64}, 64, ["sliding"] * 6),
        ({"model_type": "qwen2", "sliding_window": 64}, None, ["full"] * 6),
        (
            {"model_type": "qwen2", "sliding_window": 64, "use_sliding_window": True, "max_window_layers": 4},
            64,
            ["full"] * 4 + ["sliding"] * 2,
        ),
        ({"model_type": "gemma2", "sliding_window": 64}, 64, ["sliding", "full"] * 3),
        ({"model_type": "foo", "sliding_window": 64}, 64, ["sliding"] * 6),
    ],
)
def test_sliding_attention(config: dict[str, Any], window: int | None, kinds: list[str]) -> None:
    spec = read_config({**SIZES, **config})
    assert spec.sliding_window == window
    assert [kind.attention for kind in spec.layer_sequence] == kinds


def test_llama4_interleaves_experts_and_chunked_attention() -> None:
    text = {"model_type": "llama4_text", **SIZES, "num_local_experts": 4, "interleave_moe_layer_step": 2}
    spec = read_config({"model_type": "llama4", "text_config": text, "vision_config": {}})
    assert [kind.mlp for kind in spec.layer_sequence] == ["dense", "moe"] * 3
    assert [kind.attention for kind in spec.layer_sequence] == ["sliding"] * 3 + ["full"] + ["sliding"] * 2
    assert spec.moe is not None
    assert spec.moe.shared_expert_intermediate_size == spec.moe.moe_intermediate_size == 200
    assert any("planned_part=text decoder" in text for text in spec.assumptions)


def test_tie_of_the_wrapper_governs_where_the_text_is_silent() -> None:
    text = {"model_type": "llama", **SIZES}
    assert read_config({"text_config": text, "tie_word_embeddings": True}).tie_word_embeddings
    assert not read_config({"text_config": text}).tie_word_embeddings


def test_class_defaults_are_recorded() -> None:
    config = {"model_type": "mistral", **SIZES, "num_attention_heads": 16, "sliding_window": None}
    del config["num_key_value_heads"]
    spec = read_config(config)
    assert spec.num_key_value_heads == 8
    assert spec.assumptions == ("num_key_value_heads=8 (default of its config class in transformers)",)


def test_unknown_architecture_is_planned_from_its_numbers() -> None:
    spec = read_config({**SIZES, "model_type": "never-heard-of", "num_experts": 4, "num_experts_per_tok": 2})
    assert spec.model_type == "never-heard-of"
    assert spec.moe is not None
    assert spec.moe.moe_intermediate_size == 200
    assert {text.split("=")[0] for text in spec.assumptions} == {
        *("gated_mlp", "tie_word_embeddings", "moe_intermediate_size"),
    }


def test_bare_numbers_are_enough() -> None:
    llama = read_config({**LLAMA, "tie_word_embeddings": False})
    assert total_parameters(read_config({**SIZES, "tie_word_embeddings": False})) == total_parameters(llama)


def test_a_misspelt_switch_in_typed_numbers_is_caught() -> None:
    with pytest.raises(SpecError, match="unknown key num_key_value_head; did you mean num_key_value_heads"):
        read_config({**{k: v for k, v in SIZES.items() if k != "num_key_value_heads"}, "num_key_value_head": 2})


def test_other_keys_of_a_pasted_config_are_ignored() -> None:
    noise = {
        "bos_token_id": 1,
        "initializer_range": 0.02,
        "use_cache": True,
        "attention_dropout": 0.0,
        "rms_norm_eps": 1e-5,
    }
    assert read_config(SIZES | noise).num_key_value_heads == 2


def test_head_dim_may_differ_from_hidden_size_over_heads() -> None:
    assert read_config({**LLAMA, "head_dim": 20}).query_width == 120


@pytest.mark.parametrize(
    "key", ["hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size"]
)
@pytest.mark.parametrize("model_type", ["llama", "never-heard-of", "qwen3", "phi"])
def test_a_missing_number_is_named(model_type: str, key: str) -> None:
    config = {"model_type": model_type, **SIZES}
    del config[key]
    with pytest.raises(MissingKey, match=rf"config\.json: {key} is missing") as caught:
        read_config(config)
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": float("nan")}, "hidden_size nan is not a whole number"),
        ({"hidden_size": "96"}, "hidden_size '96' is not a whole number"),
        ({"hidden_size": 96.5}, "hidden_size 96.5 is not a whole number"),
        ({"num_hidden_layers": -3}, "num_hidden_layers -3 is not a whole number from 1"),
        ({"vocab_size": 0}, "vocab_size 0 is not a whole number from 1"),
        ({"num_attention_heads": True}, "num_attention_heads True is not a whole number"),
        ({"hidden_size": 10**15}, "hidden_size 1000000000000000 is not a whole number from 1 to"),
        ({"num_hidden_layers": 10**7}, "num_hidden_layers 10000000 is not a whole number from 1 to 10000"),
        ({"num_key_value_heads": 4}, "num_key_value_heads 4 does not divide num_attention_heads 6"),
        ({"num_attention_heads": 7}, "num_attention_heads 7 does not divide hidden_size 96"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings 'yes' is not true or false"),
        ({"rope_theta": -1}, "rope_theta -1 is not a positive number"),
        ({"rope_parameters": [1]}, r"rope_parameters \[1\] is not an object"),
        ({"torch_dtype": 4}, "torch_dtype 4 is not a string"),
        ({"model_type": ["llama"]}, r"model_type \['llama'\] is not a string"),
        ({"n_embd": 97}, "hidden_size 96 and n_embd 97 disagree"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder is true"),
    ],
)
def test_a_broken_value_is_one_line_with_both_sides(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        read_config(LLAMA | change)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "empty; hidden_size"),
        ([1], "a list is not an object"),
        (None, "a NoneType is not an object"),
        ({"model_type": "vit", "hidden_size": 768, "patch_size": 16}, "model_type 'vit'"),
        ({"model_type": "bert", **SIZES}, "model_type 'bert'"),
        ({"architectures": ["FooForMaskedLM"], **SIZES}, "architectures FooForMaskedLM"),
        ({**SIZES, "type_vocab_size": 2}, "type_vocab_size belongs to an encoder"),
        ({**SIZES, "mamba_d_state": 16}, "mamba_d_state belongs to layers without attention"),
        ({**SIZES, "layer_types": ["linear_attention"] * 6}, "layer_types 'linear_attention' is not one of"),
        ({**SIZES, "layer_types": ["full_attention"]}, "layer_types lists 1 layers but num_hidden_layers is 6"),
        ({"text_config": [1]}, r"text_config \[1\] is not an object"),
        ({"text_config": {"hidden_size": 3}}, r"text_config\.num_\w+ is missing"),
        ({**SIZES, "model_type": "mpt", "expansion_ratio": 2}, "expansion_ratio 2"),
        ({**SIZES, "model_type": "gpt2", "add_cross_attention": True}, "add_cross_attention is true"),
        ({**SIZES, "model_type": "mixtral"}, "num_experts is missing .*num_local_experts"),
        ({**SIZES, "hidden_size": 2**27, "intermediate_size": 2**27, "head_dim": 2}, r"2\^53"),
    ],
)  # fmt: skip
def test_what_is_no_decoder_is_refused_in_one_line(config: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        read_config(config)
    assert "\n" not in str(caught.value)


def test_heads_rule_is_a_broken_rule() -> None:
    with pytest.raises(BrokenRule):
        read_config(LLAMA | {"num_attention_heads": 7})


def test_no_two_families_claim_one_model_type() -> None:
    assert sum(len(family.READERS) for family in FAMILIES) == len(READERS)
