"""Mixtral (arXiv:2401.04088) and Phi-3.5-MoE: experts in every layer. Defaults of MixtralConfig and PhimoeConfig."""

from typing import Any, Final

from cost_models.hf_config.common import (
    EXPERTS,
    INTERMEDIATE,
    Reader,
    attention_kinds,
    decoder,
    key_value_heads,
    layer_kinds,
)
from cost_models.hf_config.fields import Fields
from cost_models.specs.model import ModelSpec


def _experts_everywhere(fields: Fields, **facts: Any) -> ModelSpec:
    window = fields.optional_integer("sliding_window")
    kinds = attention_kinds(fields, lambda _: window is not None)
    return decoder(
        fields,
        num_key_value_heads=key_value_heads(fields, 8),
        sliding_window=window if "sliding" in kinds else None,
        layers=layer_kinds(kinds, lambda _: True),
        moe={
            "num_experts": fields.integer(*EXPERTS),
            "num_experts_per_tok": fields.size("num_experts_per_tok", default=2),
            "moe_intermediate_size": fields.integer(*INTERMEDIATE),
        },
        **facts,
    )


def mixtral(fields: Fields) -> ModelSpec:
    """Mistral's block with eight experts."""
    return _experts_everywhere(fields)


def phimoe(fields: Fields) -> ModelSpec:
    """LayerNorm with bias, optional biases on attention and head."""
    bias = fields.flag("attention_bias", default=False)
    return _experts_everywhere(
        fields,
        normalization="layernorm",
        norm_bias=True,
        qkv_bias=bias,
        attention_output_bias=bias,
        head_bias=fields.flag("lm_head_bias", default=False),
    )


READERS: Final[dict[str, Reader]] = {"mixtral": mixtral, "phimoe": phimoe}
