"""The facts of an architecture's code, or what its numbers suggest where its code is not known."""

from functools import cache
from importlib.resources import files

import yaml

from cost_models.specs.architecture import ArchitectureFacts
from cost_models.specs.model import ModelSpec


@cache
def known() -> dict[str, ArchitectureFacts]:
    """Facts by `model_type`, from calibration_data/architectures."""
    found: dict[str, ArchitectureFacts] = {}
    folder = files("calibration_data") / "architectures"
    for resource in sorted(folder.iterdir(), key=lambda each: each.name):
        if resource.name.endswith(".yaml"):
            for entry in yaml.safe_load(resource.read_text(encoding="utf-8")):
                facts = ArchitectureFacts.read(entry)
                found |= dict.fromkeys(facts.model_types, facts)
    return found


def architecture(model: ModelSpec) -> ArchitectureFacts:
    """The facts of a model's code. An unknown one is taken for the block that its numbers describe."""
    facts = known().get(model.model_type)
    if facts is None:
        return generic(model)
    return generic(model).model_copy(update=facts.model_dump(exclude_unset=True)) if facts.by_numbers else facts


def fused_names(facts: ArchitectureFacts) -> frozenset[str]:
    """Weights that are columns of the product of another."""
    names = frozenset({"k_proj", "v_proj"}) if facts.projections == "fused" else frozenset()
    return names | (frozenset({"up_proj", "shared_expert.up_proj"}) if facts.fused_gate else frozenset())


def unknown(model: ModelSpec) -> bool:
    """Whether the model is of a named architecture whose code is not written down. A custom one has none."""
    return model.model_type != "custom" and model.model_type not in known()


def generic(model: ModelSpec) -> ArchitectureFacts:
    """A Llama-like block with the norms that the numbers state."""
    several = model.norms_per_layer > 2
    return ArchitectureFacts(
        model_types=(model.model_type,),
        norm="kernel" if model.normalization == "layernorm" else "rms",
        residual="parallel" if model.parallel_residual else "sandwich" if several else "pre",
        source="the model's own numbers; its code is not known",
    )
