"""GPT-NeoX and Pythia (arXiv:2204.06745, arXiv:2304.01373). Defaults are those of transformers' GPTNeoXConfig."""

from typing import Final

from cost_models.hf_config.common import Reader, decoder, num_attention_heads
from cost_models.hf_config.fields import Fields
from cost_models.specs.model import ModelSpec


def gpt_neox(fields: Fields) -> ModelSpec:
    """Rotary on a part of each head, parallel residual with two norms."""
    bias = fields.flag("attention_bias", default=True)
    return decoder(
        fields,
        num_key_value_heads=num_attention_heads(fields),
        activation=fields.text("hidden_act", default="gelu"),
        gated_mlp=False,
        normalization="layernorm",
        norm_bias=True,
        parallel_residual=fields.flag("use_parallel_residual", default=True),
        qkv_bias=bias,
        attention_output_bias=bias,
        mlp_bias=True,
    )


READERS: Final[dict[str, Reader]] = {"gpt_neox": gpt_neox}
