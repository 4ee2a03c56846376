"""Parameter counts against transformers' own classes on the meta device, and against published totals elsewhere.

Run everything with MESHWRIGHT_TEST_ALL=1; by default a fixed sample that touches every family.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cost_models.hf_config import model, models, read_config
from cost_models.hf_config.presets import presets
from cost_models.parameters import count, embedding_weights, head_weights, layer_parameters, total_parameters
from cost_models.specs.model import ModelSpec
from tests.scale import FULL

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

REMOTE_CODE = {"baichuan", "chatglm", "internlm", "internlm2", "qwen", "deepseek", "kimi_k2"}
"""Families whose class lives on the Hub, not in transformers."""

SAMPLE = (
    "llama-2-7b",
    "llama-3-8b",
    "llama-3.2-1b",
    "smollm2-135m",
    "mistral-7b",
    "mixtral-8x7b",
    "gpt2",
    "opt-125m",
    "opt-350m",
    "bloom-560m",
    "pythia-70m",
    "falcon-7b",
    "mpt-7b",
    "qwen1.5-moe-a2.7b",
    "qwen2.5-0.5b",
    "qwen3-0.6b",
    "gemma-2b",
    "gemma-2-2b",
    "gemma-3-1b",
    "phi-1",
    "phi-3-mini",
    "starcoderbase-1b",
    "starcoder2-3b",
    "gpt-oss-20b",
    "deepseek-v2-lite",
    "deepseek-v3",
    "llama-4-maverick-17b-128e",
    "gpt-neo-125m",
    "glm-4.5-air",
    "yi-6b",
)

LAYER_LISTS = (
    "model.layers",
    "model.language_model.layers",
    "transformer.h",
    "transformer.blocks",
    "gpt_neox.layers",
    "model.decoder.layers",
)


def reference(config: Mapping[str, Any]) -> Any:
    """transformers' causal language model of the decoder in `config`, without memory."""
    text = dict(config.get("text_config", config))
    built = transformers.AutoConfig.for_model(text.pop("model_type"), **text)
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(built)


def layers_of(reference_model: Any, expected: int) -> list[Any]:
    """The decoder layers, wherever the class keeps them."""
    for path in LAYER_LISTS:
        try:
            found = list(reference_model.get_submodule(path))
        except AttributeError:
            continue
        assert len(found) == expected
        return found
    raise AssertionError(f"no layer list in {type(reference_model).__name__}")


def numel(module: Any) -> int:
    """Parameters of a module, tied ones once."""
    return sum(p.numel() for p in module.parameters())


def assert_equal(spec: ModelSpec, config: Mapping[str, Any]) -> None:
    """Every layer by its kind, the rest, and the total."""
    other = reference(config)
    per_kind = dict(zip(spec.layer_kinds, layer_parameters(spec), strict=True))
    theirs = [numel(layer) for layer in layers_of(other, spec.num_hidden_layers)]
    assert [per_kind[kind] for kind in spec.layer_sequence] == theirs
    assert count(embedding_weights(spec)) + count(head_weights(spec)) == numel(other) - sum(theirs)
    assert total_parameters(spec) == numel(other)


def comparable() -> list[str]:
    """Presets whose class transformers has."""
    return [n for n in models() if presets()[n].config["model_type"] not in REMOTE_CODE]


@pytest.mark.parametrize("name", comparable() if FULL else SAMPLE)
def test_preset_equals_transformers(name: str) -> None:
    assert_equal(model(name), presets()[name].config)


ODD = json.loads(Path(__file__).with_name("odd_configs.json").read_text(encoding="utf-8"))
"""One small config with unusual switches a case; every family has at least one."""


@pytest.mark.parametrize("name", ODD)
def test_odd_config_equals_transformers(name: str) -> None:
    assert_equal(read_config(ODD[name]), ODD[name])
