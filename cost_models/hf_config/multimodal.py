"""Multimodal configs: the decoder sits in `text_config`, which omits every key that equals its class default."""

from collections.abc import Mapping
from typing import Any, Final

from cost_models.hf_config.fields import Fields

NESTED: Final = ("text_config", "llm_config", "language_config")
"""Where the decoder's numbers are: transformers; InternVL; DeepSeek-VL."""

TEXT_TYPES: Final[dict[str, str]] = {
    "gemma3": "gemma3_text",
    "llama4": "llama4_text",
    "mistral3": "mistral",
    "llava": "llama",
    "qwen2_vl": "qwen2_vl_text",
    "qwen2_5_vl": "qwen2_5_vl_text",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
}
"""`model_type` of a `text_config` that does not state its own."""

_LLAMA: Final = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
}
_QWEN2_VL: Final = {
    "vocab_size": 152064,
    "hidden_size": 8192,
    "intermediate_size": 29568,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
}
TEXT_DEFAULTS: Final[dict[str, Mapping[str, Any]]] = {
    "gemma3_text": {
        "vocab_size": 262208,
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "max_position_embeddings": 131072,
    },
    "llama4_text": {
        "vocab_size": 202048,
        "hidden_size": 5120,
        "intermediate_size": 8192,
        "num_hidden_layers": 48,
        "num_attention_heads": 40,
        "num_local_experts": 16,
        "max_position_embeddings": 131072,
    },
    "llama": _LLAMA,
    "mistral": _LLAMA | {"intermediate_size": 14336},
    "qwen2_vl_text": _QWEN2_VL,
    "qwen2_5_vl_text": _QWEN2_VL,
    "qwen3_vl_text": {
        "vocab_size": 151936,
        "hidden_size": 4096,
        "intermediate_size": 22016,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
    },
}
"""Class defaults of transformers' text configs; for nested configs only, as a flat config.json states its own sizes."""


def text_fields(fields: Fields) -> tuple[Fields, str]:
    """The fields of the decoder and its `model_type`; the same fields when nothing is nested."""
    outer = fields.text("model_type", default="")
    key = next((k for k in NESTED if fields.mapping(k) is not None), None)
    if key is None:
        return fields, outer
    inner = fields.nested(key)
    kind = inner.text("model_type", default=TEXT_TYPES.get(outer, ""))
    defaults = dict(TEXT_DEFAULTS.get(kind, {}))
    if fields.stated("tie_word_embeddings") is not None:
        defaults["tie_word_embeddings"] = fields.stated("tie_word_embeddings")
    text = fields.nested(key, defaults)
    for absent in sorted(TEXT_DEFAULTS.get(kind, {}).keys() - {k for k in inner.written() if inner.has(k)}):
        text.assume(absent, defaults[absent], f"default of {kind}'s config class in transformers")
    if fields.has("vision_config", "audio_config", "vit_config"):
        text.assume("planned_part", "text decoder", "the vision and audio towers of a multimodal model are not planned")
    return text, kind
