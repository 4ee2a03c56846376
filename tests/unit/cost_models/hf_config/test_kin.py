"""Conventions of single families, and switches that turn experts off or name their layers."""

from typing import Any

import pytest

from cost_models.hf_config.read import read_config
from cost_models.memory.architectures import architecture

SIZES: dict[str, Any] = {
    "vocab_size": 1000, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 2, "tie_word_embeddings": False, "rms_norm_eps": 1e-6,
}  # fmt: skip
EXPERTS: dict[str, Any] = {"num_experts": 16, "num_experts_per_tok": 2, "moe_intermediate_size": 128}


@pytest.mark.parametrize(("family", "norm"), [("mellum", "head"), ("exaone_moe", "head"), ("flex_olmo", "full")])
def test_norms_of_queries_and_keys(family: str, norm: str) -> None:
    assert read_config({**SIZES, **EXPERTS, "model_type": family}).qk_norm == norm


@pytest.mark.parametrize(
    ("switch", "norms", "residual"), [(None, 4, "sandwich"), (True, 4, "sandwich"), (False, 2, "pre")]
)
def test_norms_after_the_blocks(switch: bool | None, norms: int, residual: str) -> None:
    stated = {} if switch is None else {"use_post_norm": switch}
    model = read_config({**SIZES, **stated, "model_type": "hyperclovax"})
    assert (model.norms_per_layer, architecture(model).residual) == (norms, residual)


def test_experts_that_are_switched_off() -> None:
    config = {**SIZES, "model_type": "doge", "num_experts": 16384, "num_experts_per_tok": 64}
    assert read_config({**config, "is_moe": False}).moe is None
    assert read_config({**config, "is_moe": True}).moe is not None


def test_layers_that_are_named_dense() -> None:
    named = ["dense", "sparse", "dense", "sparse"]
    model = read_config({**SIZES, **EXPERTS, "model_type": "unheard-of", "mlp_layer_types": named})
    assert [kind.mlp for kind in model.layers] == ["dense", "moe", "dense", "moe"]


def test_norms_without_weights_and_soft_caps() -> None:
    model = read_config({**SIZES, "model_type": "nanochat", "final_logit_softcapping": 15.0})
    assert (model.norm_affine, model.embedding_norm, model.logit_softcap) == (False, True, True)
    assert not read_config({**SIZES, "model_type": "nanochat", "final_logit_softcapping": None}).logit_softcap


def test_a_gemma_without_norms_after_the_blocks() -> None:
    assert read_config({**SIZES, "model_type": "vaultgemma"}).norms_per_layer == 2
