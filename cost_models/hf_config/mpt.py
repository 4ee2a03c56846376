"""MPT (MosaicML). Defaults are those of transformers' MptConfig."""

from typing import Final

from cost_models.errors import SpecError
from cost_models.hf_config.common import Reader, decoder, hidden_size, num_attention_heads
from cost_models.hf_config.fields import Fields
from cost_models.specs.model import ModelSpec

_EXPANSION: Final = 4
"""transformers' MptMLP has this factor built in, whatever `expansion_ratio` says."""


def mpt(fields: Fields) -> ModelSpec:
    """ALiBi, no bias anywhere, norms without bias.

    Raises:
        SpecError: a variant that transformers' class does not build (multi-query, qk-norm, another expansion).
    """
    attention = fields.nested("attn_config")
    kind = attention.text("attn_type", default="multihead_attention")
    if kind != "multihead_attention":
        raise SpecError(f"{fields.where}: attn_config.attn_type {kind!r}: MPT is planned with multihead_attention only")
    if attention.flag("qk_ln", default=False):
        raise SpecError(f"{fields.where}: attn_config.qk_ln true: MPT is planned without qk-norm only")
    ratio = fields.integer("expansion_ratio", default=_EXPANSION)
    if ratio != _EXPANSION:
        raise SpecError(f"{fields.where}: expansion_ratio {ratio}: MPT is planned with {_EXPANSION} only")
    return decoder(
        fields,
        tied=True,
        num_key_value_heads=num_attention_heads(fields),
        intermediate_size=_EXPANSION * hidden_size(fields),
        activation="gelu",
        gated_mlp=False,
        normalization="layernorm",
        position_embedding="alibi",
    )


READERS: Final[dict[str, Reader]] = {"mpt": mpt}
