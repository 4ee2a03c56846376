"""Families that are the generic block but for one convention of their code."""

from typing import Final

from cost_models.hf_config.common import Reader
from cost_models.hf_config.fields import Fields
from cost_models.hf_config.gemma import gemma2
from cost_models.hf_config.generic import generic
from cost_models.specs.model import ModelSpec


def normed_heads(fields: Fields) -> ModelSpec:
    """Mellum and EXAONE-MoE: qk-norm per head. Source: transformers models/{mellum,exaone_moe}, q_norm and k_norm."""
    return generic(fields).model_copy(update={"qk_norm": "head"})


def hyperclovax(fields: Fields) -> ModelSpec:
    """HyperCLOVA X: norms after the blocks too, unless `use_post_norm` turns them off. Defaults: HyperCLOVAXConfig."""
    norms = 4 if fields.flag("use_post_norm", default=True) else 2
    return generic(fields).model_copy(update={"norms_per_layer": norms})


def nanochat(fields: Fields) -> ModelSpec:
    """nanochat: norms without weights, one more after the embedding. Defaults: NanoChatConfig."""
    facts = {"norm_affine": False, "embedding_norm": True, "qk_norm": "head"}
    return generic(fields).model_copy(update=facts)


def vaultgemma(fields: Fields) -> ModelSpec:
    """VaultGemma (arXiv:2510.15001): Gemma 2 without norms after the blocks."""
    return gemma2(fields).model_copy(update={"norms_per_layer": 2})


READERS: Final[dict[str, Reader]] = {
    "mellum": normed_heads,
    "nanochat": nanochat,
    "vaultgemma": vaultgemma,
    "exaone_moe": normed_heads,
    "hyperclovax": hyperclovax,
}
