"""DeepSeek MoE, V2 and V3 (arXiv:2401.06066, 2405.04434, 2412.19437), and Kimi K2, which keeps V3's block.

Defaults are those of transformers' DeepseekV2Config and DeepseekV3Config. The multi-token-prediction module of V3
is not part of the stack that transformers builds, and is not counted.
"""

from typing import Any, Final

from cost_models.hf_config.common import EXPERTS, Reader, decoder, layer_kinds, num_attention_heads, num_hidden_layers
from cost_models.hf_config.fields import Fields
from cost_models.specs.model import ModelSpec


def routed_experts(fields: Fields, *, first_dense: int, shared: int, per_token: int | None) -> dict[str, Any]:
    """`moe` and `layers`: routed and shared experts after a prefix of `first_k_dense_replace` dense layers."""
    prefix = fields.integer("first_k_dense_replace", default=first_dense, least=0)
    every = fields.integer("moe_layer_freq", default=1)
    width = fields.integer("moe_intermediate_size")
    layers = num_hidden_layers(fields)
    return {
        "layers": layer_kinds(["full"] * layers, lambda i: i >= prefix and i % every == 0),
        "moe": {
            "num_experts": fields.integer(*EXPERTS),
            "num_experts_per_tok": fields.size("num_experts_per_tok", default=per_token),
            "moe_intermediate_size": width,
            "shared_expert_intermediate_size": width * fields.size("n_shared_experts", default=shared, least=0),
        },
    }


def latent_attention(fields: Fields) -> dict[str, Any]:
    """Ranks of multi-head latent attention; `q_lora_rank` null projects queries directly (V2-Lite)."""
    nope = fields.size("qk_nope_head_dim", default=128)
    rope = fields.size("qk_rope_head_dim", default=64)
    rank = fields.optional_integer("q_lora_rank") or (None if fields.mentions("q_lora_rank") else 1536)
    bias = fields.flag("attention_bias", default=False)
    mla = {
        "q_lora_rank": rank,
        "kv_lora_rank": fields.size("kv_lora_rank", default=512),
        "qk_nope_head_dim": nope,
        "qk_rope_head_dim": rope,
        "v_head_dim": fields.size("v_head_dim", default=128),
    }
    return {
        "num_key_value_heads": num_attention_heads(fields),
        "head_dim": nope + rope,
        "mla": mla,
        "qkv_bias": bias,
        "attention_output_bias": bias,
    }


def deepseek(fields: Fields) -> ModelSpec:
    """DeepSeekMoE-16B (remote code): V2's feed-forward on plain attention."""
    bias = fields.flag("attention_bias", default=False)
    return decoder(
        fields,
        qkv_bias=bias,
        attention_output_bias=bias,
        **routed_experts(fields, first_dense=0, shared=0, per_token=None),
    )


def deepseek_v2(fields: Fields) -> ModelSpec:
    """DeepSeek-V2 and V2-Lite."""
    return decoder(
        fields,
        mlp_bias=fields.flag("mlp_bias", default=False),
        **latent_attention(fields),
        **routed_experts(fields, first_dense=0, shared=2, per_token=None),
    )


def deepseek_v3(fields: Fields) -> ModelSpec:
    """DeepSeek-V3 and R1."""
    return decoder(fields, **latent_attention(fields), **routed_experts(fields, first_dense=3, shared=1, per_token=8))


READERS: Final[dict[str, Reader]] = {
    "deepseek": deepseek,
    "deepseek_v2": deepseek_v2,
    "deepseek_v3": deepseek_v3,
    "kimi_k2": deepseek_v3,
}
