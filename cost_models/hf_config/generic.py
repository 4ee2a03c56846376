"""Any other decoder, planned from its numbers: a convention may stand in for a switch, never for a size."""

from typing import Any, Final

from cost_models.errors import SpecError
from cost_models.hf_config.common import (
    EXPERTS,
    KEY_VALUE_HEADS,
    attention_kinds,
    decoder,
    head_width,
    layer_kinds,
    num_attention_heads,
    num_hidden_layers,
)
from cost_models.hf_config.deepseek import latent_attention
from cost_models.hf_config.fields import Fields
from cost_models.specs.model import ModelSpec

_GATED: Final = frozenset({"silu", "swish", "swiglu", "geglu", "glu", "gelu_pytorch_tanh"})
_NOT_ATTENTION: Final = (
    "mamba_",
    "ssm_",
    "linear_num_",
    "linear_key_",
    "rwkv",
    "state_size",
    "time_step_rank",
    "lru_width",
)
"""Starts of keys that only recurrent or state-space layers have (Mamba, RWKV, RecurrentGemma, Qwen3-Next)."""


def generic(fields: Fields) -> ModelSpec:
    """Read every number under its common spellings; the block is Llama's unless the keys say otherwise.

    Raises:
        MissingKey: a size is absent under all its spellings.
        SpecError: a key that belongs to layers without attention, or, in numbers typed by hand, a misspelt one.
    """
    _refuse_recurrent(fields)
    why = f"convention for unknown model_type {fields.text('model_type', default='') or 'none'!r}"
    attention_bias = fields.flag("attention_bias", "use_bias", "bias", default=False)
    activation = fields.text("hidden_act", "hidden_activation", "activation_function", "activation", default="silu")
    facts: dict[str, Any] = {
        "activation": activation,
        "gated_mlp": fields.flag("gated_mlp", default=activation in _GATED),
        "qkv_bias": fields.flag("qkv_bias", "use_qkv_bias", "add_qkv_bias", default=attention_bias),
        "attention_output_bias": fields.flag("attention_output_bias", "attention_out_bias", default=attention_bias),
        "mlp_bias": fields.flag("mlp_bias", "use_bias", "bias", default=False),
        "head_bias": fields.flag("lm_head_bias", "head_bias", default=False),
        "qk_norm": "head" if fields.flag("use_qk_norm", "qk_norm", "qk_layernorm", default=False) else "none",
        "logit_softcap": fields.optional_number("final_logit_softcapping") is not None,
        "parallel_residual": fields.flag("use_parallel_residual", "parallel_attn", "parallel_residual", default=False),
    } | _norms(fields)
    if not fields.has("gated_mlp"):
        fields.assume("gated_mlp", facts["gated_mlp"], f"{why}, from activation {activation}")
    if not fields.has("tie_word_embeddings"):
        fields.assume("tie_word_embeddings", False, why)
    if not fields.has(*KEY_VALUE_HEADS) and not fields.has("kv_lora_rank"):
        fields.assume("num_key_value_heads", num_attention_heads(fields), f"{why}, one for each query head")
    facts |= _attention(fields) | _layers(fields)
    spec = decoder(fields, **facts)
    if not fields.has("model_type", "architectures") and (slip := fields.misspelt()) is not None:
        raise SpecError(f"{fields.where}: unknown key {fields.prefix}{slip[0]}; did you mean {slip[1]}?")
    return spec


def _refuse_recurrent(fields: Fields) -> None:
    for key in fields.written():
        if key.startswith(_NOT_ATTENTION) and fields.stated(key):
            raise SpecError(
                f"{fields.where}: {fields.prefix}{key} belongs to layers without attention, which are not planned"
            )


def _norms(fields: Fields) -> dict[str, Any]:
    layernorm = fields.has("layer_norm_eps", "layer_norm_epsilon", "layernorm_epsilon") and not fields.has(
        "rms_norm_eps"
    )
    return {
        "normalization": "layernorm" if layernorm else "rmsnorm",
        "norm_bias": fields.flag("norm_bias", default=layernorm),
        "norms_per_layer": fields.integer("norms_per_layer", default=2, least=0),
    }


def _attention(fields: Fields) -> dict[str, Any]:
    if fields.has("kv_lora_rank"):
        return latent_attention(fields)
    return {"head_dim": fields.optional_integer("head_dim", "kv_channels", "attention_head_dim") or head_width(fields)}


def _layers(fields: Fields) -> dict[str, Any]:
    """Sliding window and experts, where the config has them."""
    window = fields.optional_integer("sliding_window") if fields.flag("use_sliding_window", default=True) else None
    kinds = attention_kinds(fields, lambda _: window is not None)
    if "sliding" in kinds and window is None:
        window = fields.integer("sliding_window", "attention_chunk_size")
    facts: dict[str, Any] = {"sliding_window": window if "sliding" in kinds else None}
    experts = fields.optional_integer(*EXPERTS, "moe_num_experts", least=0)
    if not experts or experts == 1 or not fields.flag("is_moe", default=True):  # `is_moe`: DogeConfig
        return facts | {"layers": layer_kinds(kinds)}
    width = fields.optional_integer("moe_intermediate_size", "expert_ffn_hidden_size", "moe_ffn_hidden_size")
    if width is None:
        width = fields.integer("intermediate_size")
        fields.assume("moe_intermediate_size", width, "equal to intermediate_size, as in Mixtral")
    prefix = fields.integer("first_k_dense_replace", "moe_layer_start_index", default=0, least=0)
    step = fields.integer("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_freq", default=1)
    dense = frozenset(fields.integers("mlp_only_layers") or ())
    sparse = [i >= prefix and i not in dense and (i + 1) % step == 0 for i in range(num_hidden_layers(fields))]
    stated = fields.sequence("mlp_layer_types")  # transformers v5
    if stated is not None and len(stated) == len(sparse):
        sparse = [kind == "sparse" for kind in stated]
    shared = fields.optional_integer("shared_expert_intermediate_size", least=0)
    if shared is None:
        shared = width * fields.integer(
            "n_shared_experts", "num_shared_experts", "moe_num_shared_experts", default=0, least=0
        )
    moe = {
        "num_experts": experts,
        "num_experts_per_tok": fields.integer("num_experts_per_tok", "moe_topk", "moe_k", "experts_per_token"),
        "moe_intermediate_size": width,
        "shared_expert_intermediate_size": shared,
    }
    return facts | {"layers": layer_kinds(kinds, sparse.__getitem__), "moe": moe}
