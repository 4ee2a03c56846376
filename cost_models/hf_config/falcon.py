"""Falcon (arXiv:2311.16867), first named RefinedWeb(Model). Defaults are those of transformers' FalconConfig."""

from typing import Final

from cost_models.hf_config.common import Reader, decoder, hidden_size, key_value_heads, num_attention_heads
from cost_models.hf_config.fields import Fields
from cost_models.specs.model import ModelSpec


def falcon(fields: Fields) -> ModelSpec:
    """7b: multi-query, parallel, one norm; 40b, 180b: `new_decoder_architecture`, two norms; rw: sequential, ALiBi."""
    new = fields.flag("new_decoder_architecture", default=fields.text("model_type", default="") == "RefinedWeb")
    if new:
        heads = key_value_heads(fields)
    else:
        heads = 1 if fields.flag("multi_query", default=True) else num_attention_heads(fields)
    parallel = fields.flag("parallel_attn", default=True)
    norms_in_parallel = fields.integer("num_ln_in_parallel_attn", default=2 if new else 1)
    bias = fields.flag("bias", default=False)
    return decoder(
        fields,
        tied=True,
        num_key_value_heads=heads,
        intermediate_size=fields.optional_integer("ffn_hidden_size") or 4 * hidden_size(fields),
        activation=fields.text("activation", default="gelu"),
        gated_mlp=False,
        normalization="layernorm",
        norm_bias=True,
        norms_per_layer=1 if parallel and norms_in_parallel != 2 else 2,
        position_embedding="alibi" if fields.flag("alibi", default=False) else "rotary",
        parallel_residual=parallel,
        qkv_bias=bias,
        attention_output_bias=bias,
        mlp_bias=bias,
    )


READERS: Final[dict[str, Reader]] = {"falcon": falcon, "RefinedWeb": falcon, "RefinedWebModel": falcon}
