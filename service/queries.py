"""Query parameters: one that an operation does not take is refused, so that a slip of the keyboard loses no filter."""

from collections import Counter
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Final

from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import QueryParams

_LONGEST: Final = 40
"""Characters of a name that an answer repeats."""


def taken(dependant: Dependant) -> Iterator[str]:
    """Names of the parameters that an operation takes, by itself or for what it depends on."""
    yield from (field.alias for field in dependant.query_params)
    for inner in dependant.dependencies:
        yield from taken(inner)


def check(stated: QueryParams, known: frozenset[str]) -> None:
    """Refuse what is unknown, and what is stated twice.

    Raises:
        RequestValidationError: with every such name.
    """
    counts = Counter(name for name, _ in stated.multi_items())
    wrong = [
        {"type": "query", "loc": ("query", name[:_LONGEST]), "msg": why}
        for name, count in counts.items()
        if (why := _wrong(name, count, known)) is not None
    ]
    if wrong:
        raise RequestValidationError(wrong)


def _wrong(name: str, count: int, known: frozenset[str]) -> str | None:
    if name in known:
        return None if count == 1 else f"{name} is given {count} times; a parameter may stand once"
    if not known:
        return "unknown parameter; there are none here"
    nearest = get_close_matches(name[:_LONGEST], sorted(known), len(known), cutoff=0.0)
    return f"unknown parameter; those here are {', '.join(nearest)}"
