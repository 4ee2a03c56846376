"""Write docs/requests.md, the reference of every key of a request, from the models that read requests.

What a key may be, and its default, come from the models; what it means, from its description or the text under it.
`--check` writes nothing and exits 1 when the committed file is out of date.
"""

import argparse
import ast
import inspect
import json
import sys
import textwrap
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic_core import PydanticUndefined

from cost_models import catalog
from cost_models.specs.base import Spec
from cost_models.specs.cluster import DeviceSpec, LinkSpec
from cost_models.specs.configuration import BackendChoice, RecomputeCounts, Stage
from cost_models.specs.training import BatchRange, LoraSpec, TrainingSpec
from planner.configuration_request import ConfigurationRequest
from planner.constraints import DECISIONS, Constraints
from planner.request import ClusterRequest, ModelRequest, PlanRequest, PoolRequest
from solver.domains import UNLESS_ASKED

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs" / "requests.md"
COMMAND = "make docs"
WORDS = yaml.safe_load((ROOT / "docs" / "requests.words.yaml").read_text(encoding="utf-8"))
"""What the models do not say: about each section, meanings, units and examples of keys."""

SECTIONS: Final[dict[str, type[Spec]]] = {
    "request": PlanRequest,
    "model": ModelRequest,
    "cluster": ClusterRequest,
    "pool": PoolRequest,
    "training": TrainingSpec,
    "batch": BatchRange,
    "lora": LoraSpec,
    "constraints": Constraints,
    "configuration": ConfigurationRequest,
    "backend": BackendChoice,
    "stage": Stage,
    "recompute": RecomputeCounts,
    "device": DeviceSpec,
    "link": LinkSpec,
}
"""Anchor of a section -> the model that reads it."""
UNITS: Final = {"_bytes": "bytes", "_seconds": "s", "bandwidth": "bytes/s", "_watts": "W"}
"""Ends of names that state a unit."""
LARGE: Final = 1e6


def texts_below(model: type[Spec]) -> dict[str, str]:
    """The text literal under each field of a model and of those it extends."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if not issubclass(base, Spec) or base is Spec:
            continue
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(body, ast.ClassDef)
        for field, below in zip(body.body, body.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
                found[field.target.id] = " ".join(str(ast.literal_eval(below.value)).split())
    return found


def meaning(section: str, name: str) -> str:
    """What a key means.

    Raises:
        KeyError: neither the model nor requests.words.yaml says it.
    """
    model = SECTIONS[section]
    said = [model.model_fields[name].description or "", texts_below(model).get(name, "")]
    own = WORDS["meanings"].get(section, {}).get(name)
    if section == "configuration" and name in Constraints.model_fields and not any(said):
        said = [Constraints.model_fields[name].description or ""]
    parts = [part.rstrip(".") for part in ([own] if own else said) if part]
    if not parts:
        raise KeyError(f"docs/requests.words.yaml: meanings.{section}.{name} is missing")
    return ". ".join(parts)


def unit(section: str, name: str) -> str:
    """The unit of a number, empty where it has none."""
    stated = WORDS["units"].get(section, {}).get(name)
    return stated or next((text for end, text in UNITS.items() if name.endswith(end)), "")


def example(section: str, name: str) -> Any:
    """A legal value; of devices and links, that of the catalogue.

    Raises:
        KeyError: requests.words.yaml gives none.
    """
    stated = WORDS["examples"].get(section, {})
    if name in stated:
        return stated[name]
    if section in ("device", "link"):
        entry = catalog.device("a100-sxm-80gb") if section == "device" else catalog.link("infiniband-hdr")
        return entry.model_dump(mode="json")[name]
    raise KeyError(f"docs/requests.words.yaml: examples.{section}.{name} is missing")


def _bounds(schema: dict[str, Any]) -> str:
    signs = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}
    stated = [f"{words} {schema[key]}" for key, words in signs.items() if key in schema]
    if schema["type"] == "integer" and schema.get("exclusiveMinimum") == 0:
        stated[stated.index("above 0")] = "at least 1"
    return ", ".join([schema["type"], *stated])


def values(schema: dict[str, Any], titles: dict[str, str]) -> str:
    """What a key may be, from its JSON schema."""
    if "$ref" in schema:
        title = schema["$ref"].rpartition("/")[2]
        return f"[{titles[title]}](#{titles[title]})" if title in titles else "a domain"
    if "anyOf" in schema:
        parts = [values(part, titles) for part in schema["anyOf"] if part.get("type") != "null"]
        return " or ".join(dict.fromkeys(parts))
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    kind = schema.get("type")
    if kind == "array":
        items: dict[str, Any] = schema.get("items") or next(iter(schema.get("prefixItems", ())), {})
        return f"list of {values(items, titles)}"
    if kind in ("integer", "number"):
        return _bounds(schema)
    return {"boolean": "`true`, `false`", "string": "text", "object": "mapping"}.get(str(kind), "anything")


def legal(section: str, name: str, schema: dict[str, Any], titles: dict[str, str]) -> str:
    """What a key may be. Of a decision: what each value in its domain may be."""
    if unit(section, name) == "bytes" and "array" not in str(schema):
        return "size"
    if section != "constraints" or name not in DECISIONS:
        return values(schema, titles)
    decision = DECISIONS[name]
    if decision.legal is not None:
        text = ", ".join(f"`{value}`" for value in decision.legal)
    else:
        text = "`true`, `false`" if decision.kind == "flag" else f"integer, at least {decision.least}"
    return text + (f"; `forbid` means `{shown(decision.off)}`" if decision.off is not None else "")


def shown(value: Any) -> str:
    """A value as a request writes it in one line."""
    if isinstance(value, Spec):
        value = value.model_dump(mode="json", exclude_defaults=True)
    return value if isinstance(value, str) else json.dumps(_shortest(value)).replace('"', "")


def _shortest(value: Any) -> Any:
    """The value with large whole floats as 2.039e+12."""
    if isinstance(value, dict):
        return {key: _shortest(item) for key, item in value.items()}
    return f"{value:g}" if isinstance(value, float) and value >= LARGE else value


def default(section: str, name: str) -> str:
    """What holds where a key is left out."""
    field = SECTIONS[section].model_fields[name]
    if field.is_required():
        return "required"
    stated = WORDS["defaults"].get(section, {}).get(name)
    if stated is not None:
        return str(stated)
    value = field.get_default(call_default_factory=True)
    assert value is not PydanticUndefined
    if value is None and section == "constraints" and name in UNLESS_ASKED:
        return f"`{shown(UNLESS_ASKED[name])}` unless asked"
    if value is None:
        return "open" if section == "constraints" and name in DECISIONS else "none"
    return f"`{shown(value)}`" if value not in ("", (), {}) else "none"


def table(section: str) -> list[str]:
    """One line a key."""
    model = SECTIONS[section]
    properties = model.model_json_schema(mode="validation")["properties"]
    titles = {spec.__name__: anchor for anchor, spec in SECTIONS.items()}
    rows: list[tuple[str, ...]] = [("key", "meaning", "values", "unit", "default", "example"), ("---",) * 6]
    for name, field in model.model_fields.items():
        key = field.alias or name
        cells = (
            f"`{key}`",
            meaning(section, name),
            legal(section, name, properties[key], titles),
            unit(section, name),
            default(section, name),
            f"`{shown(example(section, name))}`",
        )
        rows.append(tuple(cell.replace("|", "\\|") for cell in cells))
    return [f"| {' | '.join(row)} |" for row in rows]


def document() -> str:
    """The whole document."""
    lines = ["# Requests", "", f"Written by `{COMMAND}` from the models that read requests; edit those, or"]
    lines += ["docs/requests.words.yaml, not this file.", "", WORDS["about"]["requests"].strip(), ""]
    for section in SECTIONS:
        lines += [f"## {section}", "", WORDS["about"][section].strip(), "", *table(section), ""]
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    """Write or check the document."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="only say whether the committed file is current")
    text = document()
    if not parser.parse_args().check:
        TARGET.write_text(text, encoding="utf-8")
    elif not TARGET.exists() or TARGET.read_text(encoding="utf-8") != text:
        print(f"{TARGET.relative_to(ROOT)} is out of date: run `{COMMAND}`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
