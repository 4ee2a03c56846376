"""The shipped presets: facts of published config.json files, found by name, alias or Hub id, in any case of letters."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from cost_models.errors import SpecError, UnknownName
from cost_models.hf_config.read import read_config
from cost_models.specs.model import ModelSpec

_PACKAGE = "calibration_data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """One entry of calibration_data/models/*.json."""

    name: str
    source: str
    """Where the facts were published."""
    hub: str | None
    """Hub repository whose config.json states them, if any."""
    aliases: tuple[str, ...]
    config: Mapping[str, Any]


@cache
def presets() -> Mapping[str, Preset]:
    """All presets by name; reads the data files once, builds no model."""
    found: dict[str, Preset] = {}
    for file in sorted((files(_PACKAGE) / "models").iterdir(), key=lambda f: f.name):
        if file.name.endswith(".json"):
            for name, entry in json.loads(file.read_text(encoding="utf-8")).items():
                hub = entry.get("hub")
                found[name] = Preset(
                    name=name,
                    source=entry.get("source") or f"https://huggingface.co/{hub}/blob/main/config.json",
                    hub=hub,
                    aliases=tuple(entry.get("aliases", ())),
                    config=entry["config"],
                )
    return found


def _respelt(name: str) -> tuple[str, ...]:
    """The other hyphenation of a version: `llama-2-7b` <-> `llama2-7b`, `qwen2.5-7b` <-> `qwen-2.5-7b`."""
    joined = re.sub(r"^([a-z]+)-(\d[\d.]*)(?=-|$)", r"\1\2", name)
    apart = re.sub(r"^([a-z]+)(\d[\d.]*)(?=-|$)", r"\1-\2", name)
    return tuple(spelling for spelling in (joined, apart) if spelling != name)


@cache
def _index() -> Mapping[str, str]:
    """Lower-case spelling -> preset name. Names win over aliases, aliases over Hub ids and their basenames."""
    index: dict[str, str] = {}
    every = presets().values()
    for preset in every:
        index[preset.name] = preset.name
    for preset in every:
        for alias in preset.aliases:
            if index.setdefault(alias.lower(), preset.name) != preset.name:
                raise SpecError(
                    f"calibration_data/models: alias {alias!r} of {preset.name} also means {index[alias.lower()]}"
                )
    for preset in every:
        if preset.hub is not None:
            index.setdefault(preset.hub.lower(), preset.name)
            index.setdefault(preset.hub.lower().rsplit("/", 1)[-1], preset.name)
    for spelling, name in tuple(index.items()):
        for other in _respelt(spelling):
            index.setdefault(other, name)
    return index


@cache
def _build(name: str) -> ModelSpec:
    return read_config(presets()[name].config, name=name, where=f"preset {name}")


def model(name: str) -> ModelSpec:
    """The model of a preset name, alias or Hub id.

    Raises:
        UnknownName: with the closest known names.
    """
    index = _index()
    key = name.strip().lower()
    if key not in index:
        raise UnknownName("model", name, index)
    return _build(index[key])


def models() -> tuple[str, ...]:
    """Names of all presets, in alphabetical order."""
    return tuple(sorted(presets()))
