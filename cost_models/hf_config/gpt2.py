"""GPT-2 and its near kin: learned positions or rotary, LayerNorm, plain MLP, biases everywhere.

Defaults are those of transformers' GPT2Config, GPTBigCodeConfig, GPTJConfig and GPTNeoConfig.
"""

from typing import Any, Final

from cost_models.errors import SpecError
from cost_models.hf_config.common import Reader, attention_kinds, decoder, hidden_size, layer_kinds, num_attention_heads
from cost_models.hf_config.fields import Fields
from cost_models.specs.model import ModelSpec


def _plain(fields: Fields, **facts: Any) -> ModelSpec:
    """`n_inner` null means four times the width."""
    if fields.flag("add_cross_attention", default=False):
        raise SpecError(
            f"{fields.where}: {fields.prefix}add_cross_attention is true, but only plain decoders are planned"
        )
    base: dict[str, Any] = {
        "intermediate_size": fields.optional_integer("n_inner", "intermediate_size") or 4 * hidden_size(fields),
        "activation": fields.text("activation_function", default="gelu_new"),
        "gated_mlp": False,
        "normalization": "layernorm",
        "norm_bias": True,
        "mlp_bias": True,
    }
    return decoder(fields, tied=True, **(base | facts))


def _learned(fields: Fields, default: int | None) -> dict[str, Any]:
    rows = fields.size("n_positions", "max_position_embeddings", default=default)
    return {"position_embedding": "learned", "position_embedding_rows": rows, "max_position_embeddings": rows}


def gpt2(fields: Fields) -> ModelSpec:
    """Radford et al. 2019; GPT-3 differs in sizes only (arXiv:2005.14165)."""
    return _plain(fields, qkv_bias=True, attention_output_bias=True, **_learned(fields, 1024))


def gpt_bigcode(fields: Fields) -> ModelSpec:
    """StarCoder, SantaCoder: GPT-2 with one key-value head (arXiv:2305.06161)."""
    heads = 1 if fields.flag("multi_query", default=True) else num_attention_heads(fields)
    return _plain(
        fields, num_key_value_heads=heads, qkv_bias=True, attention_output_bias=True, **_learned(fields, 1024)
    )


def gptj(fields: Fields) -> ModelSpec:
    """GPT-J: parallel residual with one norm, rotary, no attention biases, a bias on the head."""
    tied = fields.flag("tie_word_embeddings", default=False)
    return _plain(fields, norms_per_layer=1, parallel_residual=True, head_bias=True, tie_word_embeddings=tied)


def gpt_neo(fields: Fields) -> ModelSpec:
    """GPT-Neo: learned positions, bias on the attention output only, alternating local attention of `window_size`."""
    pattern = _unrolled(fields)
    window = fields.integer("window_size", default=256)
    sliding = attention_kinds(fields, lambda i: pattern[i % len(pattern)] == "local")
    return _plain(
        fields,
        attention_output_bias=True,
        sliding_window=window if "sliding" in sliding else None,
        layers=layer_kinds(sliding),
        **_learned(fields, 2048),
    )


def _unrolled(fields: Fields) -> list[str]:
    """`attention_types` [[["global", "local"], 12]] as a flat list of kinds."""
    stated = fields.sequence("attention_layers")
    if stated is not None:
        return [str(kind) for kind in stated] or ["global"]
    groups = fields.sequence("attention_types") or [[["global", "local"], 1]]
    try:
        return [str(kind) for kinds, times in groups for _ in range(min(times, 10_000)) for kind in kinds] or ["global"]
    except (TypeError, ValueError):
        raise fields.error("attention_types", groups, 'is not a list such as [[["global", "local"], 12]]') from None


READERS: Final[dict[str, Reader]] = {
    "gpt2": gpt2,
    "gpt-sw3": gpt2,
    "gpt_bigcode": gpt_bigcode,
    "gptj": gptj,
    "gpt_neo": gpt_neo,
}
