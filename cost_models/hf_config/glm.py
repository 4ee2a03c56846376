"""ChatGLM (remote code of THUDM) and GLM 4.

Defaults are those of ChatGLMConfig and of transformers' GlmConfig, Glm4Config and Glm4MoeConfig.
"""

from typing import Any, Final

from cost_models.hf_config.common import Reader, decoder, head_width, hidden_size, key_value_heads, num_attention_heads
from cost_models.hf_config.deepseek import routed_experts
from cost_models.hf_config.fields import Fields
from cost_models.specs.model import ModelSpec


def chatglm(fields: Fields) -> ModelSpec:
    """ChatGLM 1 states `inner_hidden_size`; 2, 3 and 4 state `ffn_hidden_size` and group their key-value heads."""
    return _chatglm1(fields) if fields.has("inner_hidden_size", "position_encoding_2d") else _chatglm2(fields)


def _chatglm1(fields: Fields) -> ModelSpec:
    """ChatGLM-6B: GPT-like block with biases and LayerNorm, rotary in two dimensions, head tied to the embedding."""
    return decoder(
        fields,
        tied=True,
        num_key_value_heads=num_attention_heads(fields),
        intermediate_size=fields.optional_integer("inner_hidden_size") or 4 * hidden_size(fields),
        activation="gelu",
        gated_mlp=False,
        normalization="layernorm",
        norm_bias=True,
        qkv_bias=True,
        attention_output_bias=True,
        mlp_bias=True,
    )


def _chatglm2(fields: Fields) -> ModelSpec:
    heads = num_attention_heads(fields)
    grouped = fields.flag("multi_query_attention", default=False)
    bias = fields.flag("add_bias_linear", default=False)
    rms = fields.flag("rmsnorm", default=True)
    return decoder(
        fields,
        num_key_value_heads=fields.integer("multi_query_group_num", default=1) if grouped else heads,
        head_dim=fields.optional_integer("kv_channels") or head_width(fields),
        intermediate_size=fields.integer("ffn_hidden_size", "intermediate_size"),
        vocab_size=fields.optional_integer("padded_vocab_size") or fields.integer("vocab_size"),
        normalization="rmsnorm" if rms else "layernorm",
        norm_bias=not rms,
        final_norm=fields.flag("post_layer_norm", default=True),
        qkv_bias=bias or fields.flag("add_qkv_bias", default=False),
        attention_output_bias=bias,
        mlp_bias=bias,
    )


def _glm(fields: Fields, **facts: Any) -> ModelSpec:
    return decoder(
        fields,
        num_key_value_heads=key_value_heads(fields, 2),
        head_dim=head_width(fields, 128),
        qkv_bias=fields.flag("attention_bias", default=True),
        **facts,
    )


def glm(fields: Fields) -> ModelSpec:
    """GLM-4-9B as transformers has it."""
    return _glm(fields)


def glm4(fields: Fields) -> ModelSpec:
    """GLM-4-0414: four norms a layer."""
    return _glm(fields, norms_per_layer=4)


def glm4_moe(fields: Fields) -> ModelSpec:
    """GLM 4.5: routed and shared experts after a dense prefix."""
    return decoder(
        fields,
        num_key_value_heads=key_value_heads(fields, 8),
        qkv_bias=fields.flag("attention_bias", default=False),
        qk_norm="head" if fields.flag("use_qk_norm", default=False) else "none",
        **routed_experts(fields, first_dense=1, shared=1, per_token=8),
    )


READERS: Final[dict[str, Reader]] = {"chatglm": chatglm, "glm": glm, "glm4": glm4, "glm4_moe": glm4_moe}
