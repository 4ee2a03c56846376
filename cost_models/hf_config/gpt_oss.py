"""GPT-OSS (arXiv:2508.10925). Defaults are those of transformers' GptOssConfig."""

from typing import Final

from cost_models.hf_config.common import (
    EXPERTS,
    Reader,
    attention_kinds,
    decoder,
    head_width,
    key_value_heads,
    layer_kinds,
)
from cost_models.hf_config.fields import Fields
from cost_models.specs.model import ModelSpec


def gpt_oss(fields: Fields) -> ModelSpec:
    """Attention sinks, biases on attention, router and experts; every other layer slides."""
    window = fields.integer("sliding_window", default=128)
    kinds = attention_kinds(fields, lambda i: i % 2 == 0)
    bias = fields.flag("attention_bias", default=True)
    return decoder(
        fields,
        num_key_value_heads=key_value_heads(fields, 8),
        head_dim=head_width(fields, 64),
        qkv_bias=bias,
        attention_output_bias=bias,
        attention_sinks=True,
        sliding_window=window if "sliding" in kinds else None,
        layers=layer_kinds(kinds, lambda _: True),
        moe={
            "num_experts": fields.integer(*EXPERTS),
            "num_experts_per_tok": fields.size("num_experts_per_tok", "experts_per_token", default=4),
            "moe_intermediate_size": fields.integer("intermediate_size"),
            "router_bias": True,
            "expert_bias": True,
        },
    )


READERS: Final[dict[str, Reader]] = {"gpt_oss": gpt_oss}
