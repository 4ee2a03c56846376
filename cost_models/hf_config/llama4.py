"""Llama 4. Defaults are those of transformers' Llama4TextConfig."""

from typing import Final

from cost_models.hf_config.common import (
    EXPERTS,
    Reader,
    attention_kinds,
    decoder,
    head_width,
    key_value_heads,
    layer_kinds,
    num_hidden_layers,
)
from cost_models.hf_config.fields import Fields
from cost_models.specs.model import ModelSpec


def llama4(fields: Fields) -> ModelSpec:
    """Experts every `interleave_moe_layer_step` layers beside a shared one; chunked attention where there is rotary.

    `intermediate_size` is an expert's width, `intermediate_size_mlp` a dense layer's. The qk-norm has no weight.
    """
    layers = num_hidden_layers(fields)
    step = fields.integer("interleave_moe_layer_step", default=1)
    stated = fields.integers("moe_layers")
    sparse = frozenset(range(step - 1, layers, step) if stated is None else stated)
    chunk = fields.optional_integer("attention_chunk_size") or (
        None if fields.mentions("attention_chunk_size") else 8192
    )
    interval = fields.integer("no_rope_layer_interval", default=4)
    rotary = fields.integers("no_rope_layers") or [int((i + 1) % interval != 0) for i in range(layers)]
    kinds = attention_kinds(fields, lambda i: chunk is not None and bool(rotary[i] if i < len(rotary) else 1))
    expert = fields.integer("intermediate_size")
    bias = fields.flag("attention_bias", default=False)
    return decoder(
        fields,
        num_key_value_heads=key_value_heads(fields, 8),
        head_dim=head_width(fields, 128),
        intermediate_size=fields.size("intermediate_size_mlp", default=16384),
        qkv_bias=bias,
        attention_output_bias=bias,
        sliding_window=chunk if "sliding" in kinds else None,
        layers=layer_kinds(kinds, lambda i: i in sparse),
        moe={
            "num_experts": fields.integer(*EXPERTS),
            "num_experts_per_tok": fields.size("num_experts_per_tok", default=1),
            "moe_intermediate_size": expert,
            "shared_expert_intermediate_size": expert,
        },
    )


READERS: Final[dict[str, Reader]] = {"llama4_text": llama4, "llama4": llama4}
