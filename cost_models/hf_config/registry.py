"""Which reader a `model_type` of config.json has. A new family: one module with `READERS`, one line here."""

from collections.abc import Mapping
from types import MappingProxyType, ModuleType
from typing import Final

from cost_models.hf_config import (
    bloom,
    cohere,
    deepseek,
    falcon,
    gemma,
    glm,
    gpt2,
    gpt_neox,
    gpt_oss,
    kin,
    llama,
    llama4,
    mixtral,
    mpt,
    nemotron,
    olmo,
    opt,
    phi,
    qwen,
    starcoder2,
)
from cost_models.hf_config.common import Reader
from cost_models.hf_config.generic import generic

FAMILIES: Final[tuple[ModuleType, ...]] = (
    bloom,
    cohere,
    deepseek,
    falcon,
    gemma,
    glm,
    gpt2,
    gpt_neox,
    gpt_oss,
    kin,
    llama,
    llama4,
    mixtral,
    mpt,
    nemotron,
    olmo,
    opt,
    phi,
    qwen,
    starcoder2,
)
READERS: Final[Mapping[str, Reader]] = MappingProxyType(
    {k: v for family in FAMILIES for k, v in family.READERS.items()}
)


def reader(model_type: str) -> Reader:
    """The family's reader, or the generic one for a name that no family claims."""
    return READERS.get(model_type, generic)
