"""Parameter counts against transformers' own classes on the meta device, layer by layer.

Run every preset with MESHWRIGHT_TEST_ALL=1; by default a fixed sample that touches every family.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cost_models.hf_config import model, models, read_config
from cost_models.hf_config.presets import presets
from cost_models.parameters import count, embedding_weights, head_weights, layer_parameters, total_parameters
from cost_models.specs.model import ModelSpec
from tests.scale import FULL, scaled

pytestmark = pytest.mark.torch

REMOTE_CODE = {"baichuan", "chatglm", "internlm", "internlm2", "qwen", "deepseek", "kimi_k2"}
"""Families whose class lives on the Hub, not in transformers: see test_published_totals."""

SAMPLE = (
    *(
        "llama-2-7b",
        "llama-3-8b",
        "llama-3.2-1b",
        "smollm2-135m",
        "yi-6b",
        "mistral-7b",
        "mixtral-8x7b",
        "gpt2",
        "opt-125m",
    ),
    *("opt-350m", "bloom-560m", "pythia-70m", "falcon-7b", "mpt-7b", "qwen1.5-moe-a2.7b", "qwen2.5-0.5b", "qwen3-0.6b"),
    *("gemma-2b", "gemma-2-2b", "gemma-3-1b", "gemma-3-4b", "phi-1", "phi-3-mini", "starcoderbase-1b", "starcoder2-3b"),
    *("gpt-oss-20b", "deepseek-v2-lite", "deepseek-v3", "llama-4-maverick-17b-128e", "gpt-neo-125m", "glm-4.5-air"),
)

ODD: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("odd_configs.json").read_text(encoding="utf-8"))
"""One small config with unusual switches a case; every family has at least one."""

UNLISTED = (
    "seed_oss",
    "exaone",
    "arcee",
    "ernie4_5",
    "minicpm3",
    "stablelm",
    "granitemoe",
    "sarvam_moe",
    "youtu",
    "ministral3",
)
"""Architectures that no reader of ours names, planned from the numbers that their config.json states."""

SIZES: dict[str, Any] = {
    **{"hidden_size": 96, "intermediate_size": 200, "num_hidden_layers": 3, "num_attention_heads": 6},
    **{"num_key_value_heads": 2, "vocab_size": 331, "pad_token_id": 0, "tie_word_embeddings": False},
}

LAYER_LISTS = ("model.layers", "transformer.h", "transformer.blocks", "gpt_neox.layers", "model.decoder.layers")


def their_config(config: Mapping[str, Any]) -> Any:
    """transformers' config object of the decoder in `config`."""
    text = dict(config.get("text_config", config))
    return transformers.AutoConfig.for_model(text.pop("model_type"), **text)


def their_model(config: Any) -> Any:
    """transformers' causal language model, without memory."""
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(config)


def layers_of(reference: Any, expected: int) -> list[Any]:
    """The decoder layers, wherever the class keeps them."""
    for path in LAYER_LISTS:
        try:
            found = list(reference.get_submodule(path))
        except AttributeError:
            continue
        assert len(found) == expected
        return found
    raise AssertionError(f"no layer list in {type(reference).__name__}")


def numel(module: Any) -> int:
    """Parameters of a module, tied ones once."""
    return sum(parameter.numel() for parameter in module.parameters())


def assert_equal(spec: ModelSpec, reference: Any) -> None:
    """Every layer by its kind, the rest, and the total."""
    per_kind = dict(zip(spec.layer_kinds, layer_parameters(spec), strict=True))
    theirs = [numel(layer) for layer in layers_of(reference, spec.num_hidden_layers)]
    assert [per_kind[kind] for kind in spec.layer_sequence] == theirs
    assert count(embedding_weights(spec)) + count(head_weights(spec)) == numel(reference) - sum(theirs)
    assert total_parameters(spec) == numel(reference)


def comparable() -> list[str]:
    """Presets whose class transformers has."""
    return [name for name in models() if presets()[name].config["model_type"] not in REMOTE_CODE]


@pytest.mark.parametrize("name", comparable() if FULL else SAMPLE)
def test_preset_equals_transformers(name: str) -> None:
    assert_equal(model(name), their_model(their_config(presets()[name].config)))


@pytest.mark.parametrize("name", ODD)
def test_odd_config_equals_transformers(name: str) -> None:
    assert_equal(read_config(ODD[name]), their_model(their_config(ODD[name])))


@pytest.mark.parametrize("name", ODD)
def test_config_json_as_transformers_writes_it(name: str) -> None:
    """Only differences from the class defaults, and all keys: both in the spelling of transformers v5."""
    config = their_config(ODD[name])
    expected = total_parameters(read_config(ODD[name]))
    for text in (config.to_json_string(use_diff=True), config.to_json_string(use_diff=False)):
        assert total_parameters(read_config(json.loads(text))) == expected


@pytest.mark.parametrize("model_type", UNLISTED)
def test_unlisted_architecture_equals_transformers(model_type: str) -> None:
    config = their_config({"model_type": model_type, **SIZES})
    spec = read_config(config.to_dict())
    assert_equal(spec, their_model(config))
    assert any("convention for unknown model_type" in text for text in spec.assumptions)


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        ("gemma3", {"hidden_size": 96, "num_hidden_layers": 7, "intermediate_size": 120}),
        ("llama4", {"num_hidden_layers": 3, "interleave_moe_layer_step": 2, "vocab_size": 300}),
        ("mistral3", {"model_type": "mistral", "hidden_size": 96, "num_hidden_layers": 2, "sliding_window": None}),
        ("qwen2_5_vl", {"hidden_size": 64, "num_attention_heads": 8, "num_hidden_layers": 2, "num_key_value_heads": 4}),
        ("qwen3_vl", {"hidden_size": 64, "num_hidden_layers": 2}),
        ("llava", {"model_type": "llama", "vocab_size": 64, "num_hidden_layers": 1}),
    ],
)
def test_nested_text_config_takes_class_defaults(outer: str, inner: dict[str, Any]) -> None:
    config = transformers.AutoConfig.for_model(outer, text_config=inner)
    written = json.loads(config.to_json_string(use_diff=True))
    with torch.device("meta"):
        reference = transformers.AutoModel.from_config(config.get_text_config())
    spec = read_config(written)
    expected = numel(reference) + (0 if spec.tie_word_embeddings else spec.vocab_size * spec.hidden_size)
    assert total_parameters(spec) == expected
    assert read_config({"model_type": outer, "text_config": inner}).layer_sequence == spec.layer_sequence
    assert total_parameters(read_config({"model_type": outer, "text_config": inner})) == expected


@settings(max_examples=scaled(20, 200))
@given(
    heads=st.integers(1, 12),
    group=st.integers(1, 4),
    head_dim=st.integers(1, 24).map(lambda n: 2 * n),
    stated=st.booleans(),
    sizes=st.fixed_dictionaries(
        {
            "intermediate_size": st.integers(1, 300),
            "num_hidden_layers": st.integers(1, 4),
            "vocab_size": st.integers(4, 500),
            "tie_word_embeddings": st.booleans(),
            "attention_bias": st.booleans(),
            "mlp_bias": st.booleans(),
        }
    ),
)
def test_any_llama_equals_transformers(
    heads: int, group: int, head_dim: int, stated: bool, sizes: dict[str, Any]
) -> None:
    assume(heads % group == 0)
    config = {"model_type": "llama", **sizes, "num_attention_heads": heads, "num_key_value_heads": heads // group}
    config |= {"hidden_size": heads * head_dim} | ({"head_dim": head_dim + 2} if stated else {})
    assert_equal(read_config(config), their_model(their_config(config)))
