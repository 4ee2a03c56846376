"""BLOOM (arXiv:2211.05100). Defaults are those of transformers' BloomConfig."""

from typing import Final

from cost_models.hf_config.common import Reader, decoder, hidden_size, num_attention_heads
from cost_models.hf_config.fields import Fields
from cost_models.specs.model import ModelSpec


def bloom(fields: Fields) -> ModelSpec:
    """ALiBi, a norm after the embedding, biases everywhere, four times the width in the MLP."""
    return decoder(
        fields,
        tied=True,
        num_key_value_heads=num_attention_heads(fields),
        intermediate_size=4 * hidden_size(fields),
        activation="gelu",
        gated_mlp=False,
        normalization="layernorm",
        norm_bias=True,
        embedding_norm=True,
        position_embedding="alibi",
        qkv_bias=True,
        attention_output_bias=True,
        mlp_bias=True,
    )


READERS: Final[dict[str, Reader]] = {"bloom": bloom}
