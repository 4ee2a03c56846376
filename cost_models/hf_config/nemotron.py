"""Nemotron-4 (arXiv:2402.16819). Defaults are those of transformers' NemotronConfig."""

from typing import Final

from cost_models.hf_config.common import Reader, decoder
from cost_models.hf_config.fields import Fields
from cost_models.specs.model import ModelSpec


def nemotron(fields: Fields) -> ModelSpec:
    """LayerNorm with bias, plain MLP with a squared ReLU."""
    bias = fields.flag("attention_bias", default=False)
    return decoder(
        fields,
        activation=fields.text("hidden_act", default="relu2"),
        gated_mlp=False,
        normalization="layernorm",
        norm_bias=True,
        qkv_bias=bias,
        attention_output_bias=bias,
        mlp_bias=fields.flag("mlp_bias", default=False),
    )


READERS: Final[dict[str, Reader]] = {"nemotron": nemotron}
