"""Gemma 1 to 3 (arXiv:2403.08295, 2408.00118, 2503.19786).

Defaults are those of transformers' GemmaConfig, Gemma2Config and Gemma3TextConfig.
"""

from typing import Any, Final

from cost_models.hf_config.common import Reader, decoder, head_width, key_value_heads, sliding_layers
from cost_models.hf_config.fields import Fields
from cost_models.specs.model import ModelSpec

_HEAD_DIM: Final = 256
_PATTERN_GEMMA3: Final = 6
"""Every sixth layer is global (Gemma3TextConfig `sliding_window_pattern`)."""


def _gemma(fields: Fields, kv_default: int, **facts: Any) -> ModelSpec:
    bias = fields.flag("attention_bias", default=False)
    return decoder(
        fields,
        tied=True,
        num_key_value_heads=key_value_heads(fields, kv_default),
        head_dim=head_width(fields, _HEAD_DIM),
        activation=fields.text("hidden_activation", "hidden_act", default="gelu_pytorch_tanh"),
        qkv_bias=bias,
        attention_output_bias=bias,
        embedding_multiplier=True,
        **facts,
    )


def gemma(fields: Fields) -> ModelSpec:
    """Gemma 1."""
    return _gemma(fields, 16)


def _softcap(fields: Fields, key: str, default: bool) -> bool:
    return fields.optional_number(key) is not None or (default and not fields.mentions(key))


def gemma2(fields: Fields) -> ModelSpec:
    """Gemma 2: four norms a layer, soft caps, every other layer slides."""
    return _gemma(
        fields,
        4,
        norms_per_layer=4,
        attention_softcap=_softcap(fields, "attn_logit_softcapping", default=True),
        logit_softcap=_softcap(fields, "final_logit_softcapping", default=True),
        **sliding_layers(fields, fields.integer("sliding_window", default=4096), lambda i: i % 2 == 0),
    )


def gemma3(fields: Fields) -> ModelSpec:
    """Gemma 3: qk-norm per head instead of soft caps, five sliding layers to a global one."""
    pattern = fields.integer("sliding_window_pattern", "_sliding_window_pattern", default=_PATTERN_GEMMA3)
    return _gemma(
        fields,
        4,
        norms_per_layer=4,
        qk_norm="head",
        attention_softcap=_softcap(fields, "attn_logit_softcapping", default=False),
        logit_softcap=_softcap(fields, "final_logit_softcapping", default=False),
        **sliding_layers(fields, fields.integer("sliding_window", default=4096), lambda i: (i + 1) % pattern != 0),
    )


READERS: Final[dict[str, Reader]] = {"gemma": gemma, "gemma2": gemma2, "gemma3_text": gemma3, "gemma3": gemma3}
