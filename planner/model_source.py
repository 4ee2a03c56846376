"""From the four ways to name a model to its numbers."""

from typing import Any

from cost_models.errors import BrokenRule, MissingKey, SpecError, UnknownName, all_of, within
from cost_models.specs.model import ModelSpec
from planner.request import ModelRequest

_NEEDED = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size")


def resolve_model(model: ModelRequest) -> ModelSpec:
    """The numbers of the model. A Hub id that the catalogue knows needs no network.

    Raises:
        SpecError: unknown name, no transformer, a missing or contradicting number, a Hub that cannot be reached.
    """
    way = next(name for name in type(model).model_fields if getattr(model, name) is not None)
    with within("model", way):
        return _resolved(model)


def _resolved(model: ModelRequest) -> ModelSpec:
    from cost_models import catalog, hf_config
    from cost_models.hf_config.source import load_hub

    if model.preset is not None:
        return catalog.model(model.preset)
    if model.architecture is not None:
        return _architecture(model.architecture)
    if isinstance(model.config, str):
        raise SpecError(
            f"model.config: {model.config!r} is a path, which only the command line reads; give the object inline"
        )
    if model.config is not None:
        return hf_config.read_config(model.config, where="model.config")
    try:
        return catalog.model(model.hub or "")
    except UnknownName:
        return load_hub(model.hub or "")


def _architecture(numbers: dict[str, Any]) -> ModelSpec:
    """The numbers as `ModelSpec` spells them, with two usual defaults; other spellings are read as a config.json."""
    from cost_models import hf_config

    if not set(numbers) <= set(ModelSpec.model_fields):
        return hf_config.read_config(numbers, name="custom", where="model.architecture")
    full = dict(numbers)
    missing = [MissingKey(key, "model.architecture").at(key) for key in _NEEDED if full.get(key) is None]
    if missing:
        raise all_of([*missing])
    heads, hidden = full["num_attention_heads"], full["hidden_size"]
    full.setdefault("num_key_value_heads", heads)
    if "head_dim" not in full and isinstance(heads, int) and isinstance(hidden, int) and heads > 0:
        if hidden % heads:
            raise BrokenRule(
                f"model.architecture: num_attention_heads {heads} does not divide hidden_size {hidden} "
                "and head_dim is not stated"
            )
        full["head_dim"] = hidden // heads
    try:
        return ModelSpec.read(full)
    except SpecError as error:
        found = SpecError(f"model.architecture.{error}")
        found.places = error.places
        raise found from error
