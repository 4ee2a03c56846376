"""OLMo 1 to 3 (arXiv:2402.00838, 2501.00656). Defaults are those of OlmoConfig, Olmo2Config and Olmo3Config."""

from typing import Any, Final

from cost_models.hf_config.common import Reader, decoder, sliding_layers
from cost_models.hf_config.fields import Fields
from cost_models.hf_config.generic import generic
from cost_models.specs.model import ModelSpec


def _olmo(fields: Fields, **facts: Any) -> ModelSpec:
    bias = fields.flag("attention_bias", default=False)
    return decoder(fields, qkv_bias=bias, attention_output_bias=bias, **facts)


def olmo(fields: Fields) -> ModelSpec:
    """OLMo 1: LayerNorm without any weight."""
    return _olmo(fields, normalization="layernorm", norm_affine=False)


def olmo2(fields: Fields) -> ModelSpec:
    """OLMo 2: norms after the blocks, qk-norm over the whole projection."""
    return _olmo(fields, qk_norm="full")


def olmo3(fields: Fields) -> ModelSpec:
    """OLMo 3: OLMo 2 with three sliding layers to a full one."""
    window = fields.integer("sliding_window", default=4096)
    return _olmo(fields, qk_norm="full", **sliding_layers(fields, window, lambda i: (i + 1) % 4 != 0))


def olmoe(fields: Fields) -> ModelSpec:
    """OLMoE (arXiv:2409.02060): routed experts in every layer, qk-norm over the whole projection; FlexOlmo too."""
    return generic(fields).model_copy(update={"qk_norm": "full"})


READERS: Final[dict[str, Reader]] = {"olmo": olmo, "olmo2": olmo2, "olmo3": olmo3, "olmoe": olmoe, "flex_olmo": olmoe}
