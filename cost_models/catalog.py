"""The shipped catalogue: devices, links, models, framework facts, calibration; read from `calibration_data` once."""

import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING, Any

import yaml

from cost_models import plausible
from cost_models.calibration import Calibration, Factor
from cost_models.errors import SpecError, UnknownName
from cost_models.specs.cluster import DeviceSpec, LinkSpec

if TYPE_CHECKING:
    from cost_models.specs.framework import FrameworkFacts
    from cost_models.specs.model import ModelSpec

_LOADER: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_VENDOR_WORDS = ("nvidia-", "amd-", "instinct-", "geforce-", "tesla-")


def read_yaml(resource: Traversable) -> Any:
    """The content of one shipped YAML or JSON file.

    Raises:
        SpecError: the file is no YAML; the message names the file and the line.
    """
    try:
        if resource.name.endswith(".json"):
            return json.loads(resource.read_text(encoding="utf-8"))
        return yaml.load(resource.read_text(encoding="utf-8"), Loader=_LOADER)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        at = f" line {mark.line + 1}" if mark is not None else ""
        raise SpecError(f"{resource.name}{at}: not YAML: {getattr(error, 'problem', error)}") from error


def _shipped(folder: str, suffix: str = ".yaml") -> tuple[Traversable, ...]:
    root = files("calibration_data") / folder
    if not root.is_dir():
        return ()
    return tuple(sorted((f for f in root.iterdir() if f.name.endswith(suffix)), key=lambda f: f.name))


@lru_cache(maxsize=4096)
def spelling(name: str) -> str:
    """The form in which names are compared: lower case, one dash for every gap, no vendor or product line in front, no
    board behind, sizes in `gb`.
    """
    text = "-".join(name.lower().replace("_", " ").replace("-", " ").split()).removesuffix("-oam")
    text = re.sub(r"(-\d{2,3})g(?=-|$)", r"\1gb", text)
    shorter = text
    for word in _VENDOR_WORDS:
        shorter = shorter.removeprefix(word)
    return shorter or text


@cache
def devices() -> tuple[DeviceSpec, ...]:
    """Every shipped device, by name."""
    return tuple(DeviceSpec.read(read_yaml(resource)) for resource in _shipped("devices"))


@cache
def links() -> tuple[LinkSpec, ...]:
    """Every shipped link, by name."""
    return tuple(LinkSpec.read(read_yaml(resource)) for resource in _shipped("links"))


@cache
def _device_index() -> Mapping[str, DeviceSpec]:
    return _index(devices())


@cache
def _link_index() -> Mapping[str, LinkSpec]:
    return _index(links())


def _index(specs: tuple[Any, ...]) -> dict[str, Any]:
    index: dict[str, Any] = {}
    for spec in specs:
        for name in (spec.name, *spec.aliases):
            if index.setdefault(spelling(name), spec) is not spec:
                raise SpecError(f"{name!r} names both {index[spelling(name)].name} and {spec.name} in the catalogue")
    return index


@cache
def _ambiguities() -> Mapping[str, tuple[str, ...]]:
    raw = read_yaml(files("calibration_data") / "device_ambiguities.yaml")
    return {spelling(name): tuple(candidates) for name, candidates in raw.items()}


def device(name: str) -> DeviceSpec:
    """The device of that name or alias, in any case; of an ambiguous name the one that stands in for time.

    Raises:
        UnknownName: no device answers to it; close names are offered.
    """
    key = spelling(name)
    ambiguous = _ambiguities().get(key)
    found = _device_index().get(spelling(ambiguous[0]) if ambiguous else key)
    if found is None:
        raise UnknownName("device", name, [spec.name for spec in devices()])
    return found


def is_ambiguous(name: str) -> bool:
    """Whether the name leaves open which of several devices is meant: their memory differs or is unknown."""
    return spelling(name) in _ambiguities()


def device_candidates(name: str) -> tuple[DeviceSpec, ...]:
    """Every device that the name may mean; one where it is clear.

    Raises:
        UnknownName: none.
    """
    return tuple(device(candidate) for candidate in _ambiguities().get(spelling(name), (name,)))


def link(name: str) -> LinkSpec:
    """The link of that name or alias.

    Raises:
        UnknownName: none of that name; close names are offered.
    """
    found = _link_index().get(spelling(name))
    if found is None:
        raise UnknownName("link", name, [spec.name for spec in links()])
    return found


def model(name: str) -> "ModelSpec":
    """The preset of that name or alias.

    Raises:
        UnknownName: none of that name; close names are offered.
    """
    from cost_models.hf_config import presets  # noqa: PLC0415  the catalogue of devices works without the families

    return presets.model(name)


def models() -> tuple[str, ...]:
    """Names of all shipped presets."""
    from cost_models.hf_config import presets  # noqa: PLC0415  as above

    return presets.models()


@cache
def frameworks() -> "tuple[FrameworkFacts, ...]":
    """What each shipped framework is known to do with memory and time."""
    from cost_models.specs.framework import FrameworkFacts  # noqa: PLC0415  as above

    return tuple(FrameworkFacts.read(read_yaml(resource)) for resource in _shipped("frameworks"))


def framework(name: str) -> "FrameworkFacts":
    """The facts of one framework.

    Raises:
        UnknownName: none of that name; close names are offered.
    """
    for facts in frameworks():
        if spelling(facts.name) == spelling(name):
            return facts
    raise UnknownName("framework", name, [facts.name for facts in frameworks()])


@cache
def calibration() -> Calibration:
    """The shipped calibration: all files `calibration_data/calibrations/shipped-*.yaml` together.

    Raises:
        SpecError: two files state the same factor.
    """
    factors: dict[str, Factor] = {}
    versions: list[str] = []
    data: dict[str, str] = {}
    for resource in _shipped("calibrations"):
        if not resource.name.startswith("shipped-"):
            continue
        part = Calibration.read(read_yaml(resource))
        versions.append(part.version)
        for twice in factors.keys() & part.factors.keys():
            raise SpecError(f"{resource.name}: factor {twice} is already stated in another shipped calibration")
        factors.update(part.factors)
        data.update(part.data)
    return Calibration(version="+".join(dict.fromkeys(versions)) or "none", factors=factors, data=data)


def check_calibration(stated: Calibration) -> None:
    """Hold a calibration from outside against the shipped one.

    Raises:
        SpecError: it states what no machine has; each such factor is named with its range.
    """
    plausible.check(stated, calibration(), _ranges())


@cache
def _ranges() -> Mapping[str, Any]:
    found: Mapping[str, Any] = read_yaml(files("calibration_data") / "calibrations" / "ranges.yaml")
    return found


@cache
def catalogue_hash() -> str:
    """SHA-256 over the content of the catalogue: devices, links, ambiguous names, models, frameworks."""
    content: dict[str, Any] = {
        "devices": [spec.model_dump(mode="json") for spec in devices()],
        "links": [spec.model_dump(mode="json") for spec in links()],
        "ambiguities": {name: list(candidates) for name, candidates in _ambiguities().items()},
    }
    for folder, suffix in (("models", ".json"), ("frameworks", ".yaml")):
        content[folder] = {resource.name: read_yaml(resource) for resource in _shipped(folder, suffix)}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
