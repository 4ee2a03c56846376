"""Llama and the dense models that keep its block: RMSNorm, gated MLP, rotary, grouped key-value heads.

Defaults are those of transformers' LlamaConfig, MistralConfig, SmolLM3Config, GraniteConfig, Exaone4Config,
and of the published remote-code configuration classes of InternLM, Baichuan and Yi.
"""

from typing import Any, Final

from cost_models.hf_config.common import Reader, decoder, key_value_heads, num_attention_heads, sliding_layers
from cost_models.hf_config.fields import Fields
from cost_models.specs.model import ModelSpec


def llama(fields: Fields) -> ModelSpec:
    """Llama 1 to 3 (arXiv:2302.13971, 2307.09288, 2407.21783) and all published as one: Yi, TinyLlama, SmolLM."""
    bias = fields.flag("attention_bias", default=False)
    return decoder(fields, qkv_bias=bias, attention_output_bias=bias, mlp_bias=fields.flag("mlp_bias", default=False))


def mistral(fields: Fields) -> ModelSpec:
    """Mistral (arXiv:2310.06825): every layer slides unless `sliding_window` is null."""
    return decoder(
        fields,
        num_key_value_heads=key_value_heads(fields, 8),
        **sliding_layers(fields, _window(fields), lambda _: True),
    )


def _window(fields: Fields) -> int | None:
    """`sliding_window`; MistralConfig's 4096 only where the key is absent, not where it is null."""
    return fields.optional_integer("sliding_window") or (None if fields.mentions("sliding_window") else 4096)


def smollm3(fields: Fields) -> ModelSpec:
    """SmolLM3: Llama with tied embeddings and some layers without rotary."""
    bias = fields.flag("attention_bias", default=False)
    window = fields.optional_integer("sliding_window") if fields.flag("use_sliding_window", default=False) else None
    every = fields.integer("no_rope_layer_interval", default=4)
    without_rope = fields.integers("no_rope_layers") or []

    def slides(i: int) -> bool:
        return bool(without_rope[i] if i < len(without_rope) else (i + 1) % every) is False

    return decoder(
        fields,
        tied=True,
        num_key_value_heads=key_value_heads(fields, 4),
        qkv_bias=bias,
        attention_output_bias=bias,
        mlp_bias=fields.flag("mlp_bias", default=False),
        **sliding_layers(fields, window, slides),
    )


def granite(fields: Fields) -> ModelSpec:
    """Granite 3: Llama with multipliers on the embedding and the residuals."""
    bias = fields.flag("attention_bias", default=False)
    return decoder(
        fields,
        qkv_bias=bias,
        attention_output_bias=bias,
        mlp_bias=fields.flag("mlp_bias", default=False),
        embedding_multiplier=True,
    )


def exaone4(fields: Fields) -> ModelSpec:
    """EXAONE 4: Llama's projections with qk-norm per head; norms after the blocks."""
    window = fields.optional_integer("sliding_window") or (None if fields.mentions("sliding_window") else 4096)
    every = fields.integer("sliding_window_pattern", default=4) if window is not None else 1
    return decoder(fields, qk_norm="head", **sliding_layers(fields, window, lambda i: (i + 1) % every != 0))


def apertus(fields: Fields) -> ModelSpec:
    """Apertus (arXiv:2509.14233): a feed-forward without gate under xIELU, qk-norm per head."""
    bias = fields.flag("attention_bias", default=False)
    return decoder(
        fields, qk_norm="head", gated_mlp=False, qkv_bias=bias, attention_output_bias=bias,
        mlp_bias=fields.flag("mlp_bias", default=False),
    )  # fmt: skip


def internlm(fields: Fields) -> ModelSpec:
    """InternLM 1: Llama with a `bias` on the four attention projections."""
    bias = fields.flag("bias", default=True)
    heads = num_attention_heads(fields)
    return decoder(fields, num_key_value_heads=heads, qkv_bias=bias, attention_output_bias=bias)


def internlm2(fields: Fields) -> ModelSpec:
    """InternLM 2 (arXiv:2403.17297): grouped heads, `bias` on attention only."""
    bias = fields.flag("bias", default=not fields.has("num_key_value_heads"))
    return decoder(fields, qkv_bias=bias, attention_output_bias=bias)


def internlm3(fields: Fields) -> ModelSpec:
    """InternLM 3: `qkv_bias` apart from the `bias` of the output and MLP projections."""
    bias = fields.flag("bias", default=False)
    return decoder(
        fields,
        num_key_value_heads=key_value_heads(fields, 2),
        qkv_bias=fields.flag("qkv_bias", default=False),
        attention_output_bias=bias,
        mlp_bias=bias,
    )


def baichuan(fields: Fields) -> ModelSpec:
    """Baichuan 1 and 2 (arXiv:2309.10305): 7B is rotary; 13B, which states only `model_max_length`, is ALiBi."""
    facts: dict[str, Any] = {"num_key_value_heads": num_attention_heads(fields)}
    if not fields.has("max_position_embeddings"):
        facts["position_embedding"] = "alibi"
    return decoder(fields, **facts)


READERS: Final[dict[str, Reader]] = {
    "llama": llama,
    "Yi": llama,
    "yi": llama,
    "code_llama": llama,
    "mistral": mistral,
    "ministral": mistral,
    "smollm3": smollm3,
    "granite": granite,
    "exaone4": exaone4,
    "apertus": apertus,
    "internlm": internlm,
    "internlm2": internlm2,
    "internlm3": internlm3,
    "baichuan": baichuan,
}
