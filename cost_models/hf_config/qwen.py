"""Qwen 1 to 3 (arXiv:2309.16609, 2407.10671, 2412.15115, 2505.09388) and their mixtures of experts.

Defaults are those of QWenConfig (remote code) and of Qwen2Config, Qwen2MoeConfig, Qwen3Config, Qwen3MoeConfig.
"""

from collections.abc import Callable
from typing import Any, Final

from cost_models.errors import BrokenRule
from cost_models.hf_config.common import (
    EXPERTS,
    Reader,
    attention_kinds,
    decoder,
    head_width,
    key_value_heads,
    layer_kinds,
    num_attention_heads,
    num_hidden_layers,
    sliding_layers,
)
from cost_models.hf_config.fields import Fields
from cost_models.specs.model import ModelSpec


def _window(fields: Fields) -> int | None:
    """The window, if `use_sliding_window` turns it on."""
    return fields.integer("sliding_window", default=4096) if fields.flag("use_sliding_window", default=False) else None


def _upper_layers(fields: Fields) -> dict[str, Any]:
    """The layers from `max_window_layers` up slide."""
    first = fields.integer("max_window_layers", default=28, least=0)
    return sliding_layers(fields, _window(fields), lambda i: i >= first)


def qwen(fields: Fields) -> ModelSpec:
    """Qwen 1: `intermediate_size` counts gate and up together; biases on the query, key and value only."""
    both = fields.integer("intermediate_size")
    if both % 2:
        raise BrokenRule(
            f"{fields.where}: intermediate_size {both} is odd, but it holds the gate and the up projection of Qwen 1"
        )
    bias = not fields.flag("no_bias", default=True)
    return decoder(
        fields,
        num_key_value_heads=num_attention_heads(fields),
        intermediate_size=both // 2,
        qkv_bias=True,
        attention_output_bias=bias,
        mlp_bias=bias,
    )


def qwen2(fields: Fields) -> ModelSpec:
    """Qwen 1.5, 2, 2.5: biases on the query, key and value projections."""
    return decoder(fields, qkv_bias=True, **_upper_layers(fields))


def qwen3(fields: Fields) -> ModelSpec:
    """Qwen 3: qk-norm per head in place of the biases."""
    bias = fields.flag("attention_bias", default=False)
    return decoder(
        fields,
        head_dim=head_width(fields, 128),
        qkv_bias=bias,
        attention_output_bias=bias,
        qk_norm="head",
        **_upper_layers(fields),
    )


def _experts(fields: Fields, slides: Callable[[int], bool], per_token: int) -> dict[str, Any]:
    """Experts every `decoder_sparse_step` layers, except in `mlp_only_layers`."""
    step = fields.integer("decoder_sparse_step", default=1)
    dense = frozenset(fields.integers("mlp_only_layers") or ())
    window = _window(fields)
    kinds = attention_kinds(fields, lambda i: window is not None and slides(i))
    sparse = [i not in dense and (i + 1) % step == 0 for i in range(num_hidden_layers(fields))]
    moe = {
        "num_experts": fields.integer(*EXPERTS),
        "num_experts_per_tok": fields.size("num_experts_per_tok", default=per_token),
        "moe_intermediate_size": fields.integer("moe_intermediate_size"),
    }
    return {
        "sliding_window": window if "sliding" in kinds else None,
        "layers": layer_kinds(kinds, sparse.__getitem__),
        "moe": moe,
    }


def qwen2_moe(fields: Fields) -> ModelSpec:
    """Qwen 1.5 and 2 MoE: a gated shared expert beside the routed ones."""
    first = fields.integer("max_window_layers", default=28, least=0)
    facts = _experts(fields, lambda i: i % 2 == 0 and i < first, per_token=4)
    facts["moe"] |= {
        "shared_expert_intermediate_size": fields.integer("shared_expert_intermediate_size"),
        "shared_expert_gate": True,
    }
    return decoder(
        fields, num_key_value_heads=key_value_heads(fields, 16), qkv_bias=fields.flag("qkv_bias", default=True), **facts
    )


def qwen3_moe(fields: Fields) -> ModelSpec:
    """Qwen 3 MoE: routed experts only."""
    bias = fields.flag("attention_bias", default=False)
    return decoder(
        fields,
        num_key_value_heads=key_value_heads(fields, 4),
        qkv_bias=bias,
        attention_output_bias=bias,
        qk_norm="head",
        **_experts(fields, lambda _: True, per_token=8),
    )


READERS: Final[dict[str, Reader]] = {
    "qwen": qwen,
    "qwen2": qwen2,
    "qwen2_moe": qwen2_moe,
    "qwen3": qwen3,
    "qwen3_moe": qwen3_moe,
    "qwen2_vl": qwen2,
    "qwen2_vl_text": qwen2,
    "qwen2_5_vl": qwen2,
    "qwen2_5_vl_text": qwen2,
    "qwen3_vl_text": qwen3,
    "qwen3_vl_moe_text": qwen3_moe,
}
