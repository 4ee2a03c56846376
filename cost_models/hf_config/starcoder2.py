"""StarCoder 2 (arXiv:2402.19173). Defaults are those of transformers' Starcoder2Config. StarCoder 1 is in `gpt2`."""

from typing import Final

from cost_models.hf_config.common import Reader, decoder, key_value_heads, sliding_layers
from cost_models.hf_config.fields import Fields
from cost_models.specs.model import ModelSpec


def starcoder2(fields: Fields) -> ModelSpec:
    """Grouped heads, LayerNorm, plain MLP, `use_bias` on every projection."""
    bias = fields.flag("use_bias", default=True)
    return decoder(
        fields,
        tied=True,
        num_key_value_heads=key_value_heads(fields, 2),
        activation=fields.text("hidden_act", default="gelu_pytorch_tanh"),
        gated_mlp=False,
        normalization="layernorm",
        norm_bias=True,
        qkv_bias=bias,
        attention_output_bias=bias,
        mlp_bias=bias,
        **sliding_layers(fields, fields.optional_integer("sliding_window"), lambda _: True),
    )


READERS: Final[dict[str, Reader]] = {"starcoder2": starcoder2}
