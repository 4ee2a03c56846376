"""What a noun's fields are declared as: which values they take as numbers, which keys stand where."""

import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel

LARGEST_INTEGER: Final = 2**53 - 1
"""What every JSON reader carries without loss (RFC 8259, section 6)."""


def leaves(annotation: Any) -> Iterator[Any]:
    """The types and literal values that an annotation ends in."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from leaves(get_args(annotation)[0])
    elif origin is Literal:
        yield from get_args(annotation)
    elif origin in (Union, types.UnionType) or (isinstance(origin, type) and issubclass(origin, Sequence)):
        for part in get_args(annotation):
            yield from leaves(part)
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        yield from leaves(get_args(annotation)[1])
    else:
        yield annotation


@dataclass(frozen=True, slots=True)
class _Number:
    """A field of numbers."""

    integers: bool
    """It takes integers only."""
    units: bool
    """It reads text by itself: quantities with units bring their own parser."""
    names: frozenset[str]
    """Texts that it takes beside numbers."""


@cache
def _number_of(model: type[BaseModel], name: str) -> _Number | None:
    """What the field is declared as; None if it takes no numbers, or text or switches too."""
    field = model.model_fields[name]
    ends = list(leaves(field.annotation))
    if bool in ends or str in ends or Any in ends or not {int, float} & {e for e in ends if isinstance(e, type)}:
        return None
    units = "BeforeValidator" in repr((field.metadata, field.annotation))
    return _Number(float not in ends, units, frozenset(end for end in ends if isinstance(end, str)))


_NEAR: Final = 0.65
"""Share of letters from which a key is taken for another that was meant."""
_LONGEST: Final = 40
"""Characters of a user's value that a message repeats."""


def check_numbers(model: type[BaseModel], name: str, value: Any) -> None:
    """Refuse what pydantic would turn into a number although it is none: true, false, text.

    Raises:
        ValueError: with what to write instead.
    """
    declared = _number_of(model, name)
    if declared is None:
        return
    for item in _items(value):
        if isinstance(item, bool):
            kind = "an integer" if declared.integers else "a number"
            raise ValueError(f"{str(item).lower()} is not {kind}")  # noqa: TRY004  pydantic reads ValueErrors
        if not declared.integers or declared.units:
            continue
        if isinstance(item, str) and item not in declared.names:
            raise ValueError(_not_an_integer(item))
        if isinstance(item, int) and abs(item) > LARGEST_INTEGER:
            shown = item if abs(item) < 10**_LONGEST else "an integer of many digits"
            raise ValueError(f"{shown} exceeds {LARGEST_INTEGER}, the largest integer that is read")


def _items(value: Any) -> Iterable[Any]:
    """The numbers of a field; a mapping may be a noun of its own, whose switches are none of ours."""
    return value if isinstance(value, list | tuple) else (value,)


def _not_an_integer(text: str) -> str:
    shown = repr(text) if len(text) <= _LONGEST else f"{text[:_LONGEST]!r}..."
    try:
        number = float(text) if len(text) <= _LONGEST else 0.5
    except ValueError:
        return f"text {shown} is not an integer"
    if number.is_integer() and abs(number) <= LARGEST_INTEGER:
        return f"text {shown} is not an integer; write {int(number)}"
    return f"text {shown} is not an integer"


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    return [end for end in leaves(annotation) if isinstance(end, type) and issubclass(end, BaseModel)]


def unknown_key(model: type[BaseModel] | None, path: Sequence[Any]) -> str:
    """What to say of an unknown key at `path`, where `model` stands at its root: the nearest key, and all of them."""
    found = list(_models_in(model))  # a body may be one of several
    for part in path[:-1]:
        fields = [m.model_fields[part] for m in found if isinstance(part, str) and part in m.model_fields]
        if fields:
            found = [inner for field in fields for inner in _models_in(field.annotation)]
    keys = list(dict.fromkeys(field.alias or key for m in found for key, field in m.model_fields.items()))
    if not keys:
        return "unknown key"
    near = get_close_matches(str(path[-1])[:_LONGEST], keys, 1, _NEAR)
    return f"unknown key{f'; did you mean {near[0]}?' if near else ''}; keys here are {', '.join(keys)}"
