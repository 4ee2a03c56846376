"""Phi 1 to 4. Defaults are those of transformers' PhiConfig and Phi3Config."""

from typing import Final

from cost_models.hf_config.common import Reader, decoder, sliding_layers
from cost_models.hf_config.fields import Fields
from cost_models.specs.model import ModelSpec


def phi(fields: Fields) -> ModelSpec:
    """Phi 1, 1.5, 2: parallel residual with one LayerNorm, biases everywhere, also on the head."""
    return decoder(
        fields,
        activation=fields.text("hidden_act", default="gelu_new"),
        gated_mlp=False,
        normalization="layernorm",
        norm_bias=True,
        norms_per_layer=1,
        parallel_residual=True,
        qkv_bias=True,
        attention_output_bias=True,
        mlp_bias=True,
        head_bias=True,
        qk_norm="head" if fields.flag("qk_layernorm", default=False) else "none",
    )


def phi3(fields: Fields) -> ModelSpec:
    """Phi 3, 3.5 and 4 (arXiv:2404.14219): Llama's block with fused projections."""
    return decoder(fields, **sliding_layers(fields, fields.optional_integer("sliding_window"), lambda _: True))


READERS: Final[dict[str, Reader]] = {"phi": phi, "phi3": phi3}
