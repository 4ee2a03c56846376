"""Command R (Cohere). Defaults are those of transformers' CohereConfig and Cohere2Config."""

from typing import Any, Final

from cost_models.hf_config.common import Reader, decoder, sliding_layers
from cost_models.hf_config.fields import Fields
from cost_models.specs.model import ModelSpec


def _command(fields: Fields, **facts: Any) -> ModelSpec:
    """Parallel residual with one LayerNorm without bias, tied embeddings."""
    bias = fields.flag("attention_bias", default=False)
    return decoder(
        fields,
        tied=True,
        normalization="layernorm",
        norms_per_layer=1,
        parallel_residual=True,
        qkv_bias=bias,
        attention_output_bias=bias,
        **facts,
    )


def cohere(fields: Fields) -> ModelSpec:
    """Command R and R+, the latter with qk-norm."""
    return _command(fields, qk_norm="full" if fields.flag("use_qk_norm", default=False) else "none")


def cohere2(fields: Fields) -> ModelSpec:
    """Command R7B and A: three sliding layers to a full one."""
    pattern = fields.integer("sliding_window_pattern", "_sliding_window_pattern", default=4)
    window = fields.integer("sliding_window", default=4096)
    return _command(fields, **sliding_layers(fields, window, lambda i: (i + 1) % pattern != 0))


READERS: Final[dict[str, Reader]] = {"cohere": cohere, "cohere2": cohere2}
