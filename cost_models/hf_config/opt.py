"""OPT (arXiv:2205.01068). Defaults are those of transformers' OPTConfig."""

from typing import Final

from cost_models.hf_config.common import Reader, decoder, hidden_size
from cost_models.hf_config.fields import Fields
from cost_models.specs.model import ModelSpec

_POSITION_OFFSET: Final = 2
"""Rows before the first position (transformers `OPTLearnedPositionalEmbedding.offset`)."""


def opt(fields: Fields) -> ModelSpec:
    """Learned positions with an offset of two rows.

    OPT-350m is the odd one: narrower embeddings between two projections, norms after the blocks, hence no final norm.
    """
    hidden = hidden_size(fields)
    width = fields.integer("word_embed_proj_dim", default=hidden)
    positions = fields.size("max_position_embeddings", default=2048)
    bias = fields.flag("enable_bias", default=True)
    pre_norm = fields.flag("do_layer_norm_before", default=True)
    return decoder(
        fields,
        tied=True,
        intermediate_size=fields.integer("ffn_dim"),
        activation=fields.text("activation_function", default="relu"),
        gated_mlp=False,
        normalization="layernorm",
        norm_bias=True,
        norm_affine=fields.flag("layer_norm_elementwise_affine", default=True),
        final_norm=pre_norm and not fields.flag("_remove_final_layer_norm", default=False),
        position_embedding="learned",
        position_embedding_rows=positions + _POSITION_OFFSET,
        max_position_embeddings=positions,
        qkv_bias=bias,
        attention_output_bias=bias,
        mlp_bias=bias,
        embedding_projection=None if width == hidden else width,
    )


READERS: Final[dict[str, Reader]] = {"opt": opt}
