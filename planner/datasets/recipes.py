"""Facts that a row leaves to a published recipe it names."""

import re
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from planner.measurement import Measurement


@cache
def _books() -> tuple[dict[str, Any], ...]:
    folder = files("calibration_data") / "recipes"
    return tuple(
        yaml.safe_load(file.read_text(encoding="utf-8"))
        for file in sorted(folder.iterdir(), key=lambda file: file.name)
        if file.name.endswith(".yaml")
    )


def with_recipe(row: Measurement) -> Measurement:
    """The row with the facts of the recipe that its notes name; what the row states itself wins."""
    for book in _books():
        named = re.search(book["pattern"], row.notes)
        if named is None:
            continue
        name = book.get("named", "{match}").format(match=named.group(1), **row.model_dump(exclude={"facts"}))
        for recipe in book["recipes"]:
            if re.fullmatch(recipe["name"], name):
                facts = {key: str(value) for key, value in recipe["facts"].items()}
                return row.model_copy(update={"facts": {**facts, **row.facts}})
    return row
