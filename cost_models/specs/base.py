"""The base of every noun: frozen, closed to unknown keys, one-line errors."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator

from cost_models.errors import Place, SpecError
from cost_models.specs.fields import check_numbers, unknown_key


def one_line(error: ValidationError, data: Any = None, model: type[BaseModel] | None = None) -> str:
    """The first complaint of pydantic as `field: message; got value`, with the count of the other fields complained of.

    With the `data` that was validated, the path names its keys only, not the branches of unions. With the
    `model`, an unknown key is answered with those that there are.
    """
    complaints = error.errors(include_url=False)
    first = _telling(complaints, data)
    where = _path(first, data)
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        message = unknown_key(model, first["loc"])
    if first["type"] not in ("value_error", "missing", "extra_forbidden") and isinstance(first["input"], _SCALARS):
        message += f"; got {_shortened(first['input'])}"
    others = len({path for c in complaints if not f"{where}.".startswith(f"{(path := _path(c, data))}.")})
    text = f"{where}: {message}" if where else message
    return text + (f" (and {others} more)" if others else "")


def _telling(complaints: Sequence[Any], data: Any) -> Any:
    """Of the complaints about the first field (one per branch of a union), one that broke a rule, else the deepest."""
    field = _path(complaints[0], data)
    about = [c for c in complaints if (_path(c, data) + ".").startswith(field + ".")]
    return min(about, key=lambda c: (c["type"] != "value_error", -len(_path(c, data))))


MOST_PLACES: Final = 50
"""Of one input; whoever mends these sees the rest."""
_SCALARS = (bool, int, float, str, type(None))
_LONGEST = 60


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _path(complaint: Any, data: Any) -> str:
    """Dotted path of a complaint."""
    return ".".join(steps(complaint, data))


def by_field(complaints: Sequence[Any], data: Any) -> dict[tuple[str, ...], list[Any]]:
    """Complaints by the keys that lead to their field.

    The branches of a union all complain, some of the field as a whole: where others say what is wrong within it, they
    alone are of use.
    """
    fields: dict[tuple[str, ...], list[Any]] = {}
    for found in complaints:
        fields.setdefault(tuple(steps(found, data)), []).append(found)
    whole = {path[:length] for path in fields for length in range(len(path))}
    return {path: own for path, own in fields.items() if path not in whole}


def places(fields: Mapping[tuple[str, ...], Sequence[Any]], model: type[BaseModel] | None) -> tuple[Place, ...]:
    """What is wrong with each of the first fields complained of, where `model` was read."""
    return tuple((path, _said(own, model)) for path, own in itertools.islice(fields.items(), MOST_PLACES))


def _said(complaints: Sequence[Any], model: type[BaseModel] | None) -> str:
    """What is wrong with one field: the rule that it breaks, or else what each branch of a union would take."""
    broken = [found for found in complaints if found["type"] == "value_error"]
    told = dict.fromkeys(_message(found, model) for found in broken or complaints)
    return "; or ".join(told)


def _message(complaint: Any, model: type[BaseModel] | None) -> str:
    if complaint["type"] == "extra_forbidden":
        return unknown_key(model, complaint["loc"])
    return str(complaint["msg"]).removeprefix("Value error, ")


def steps(complaint: Any, data: Any) -> list[str]:
    """The keys that lead to a complaint. A part that is no key of the data is a branch of a union or a missing key."""
    parts, place = [], data
    for index, part in enumerate(complaint["loc"]):
        last = index == len(complaint["loc"]) - 1
        if data is None or (last and complaint["type"] == "missing"):
            parts.append(str(part))
        elif isinstance(place, Mapping) and part in place:
            parts.append(_shortened(part)[1:-1] if isinstance(part, str) else str(part))
            place = place[part]
        elif isinstance(part, int) and isinstance(place, Sequence) and not isinstance(place, str) and part < len(place):
            parts.append(str(part))
            place = place[part]
    return parts


class Spec(BaseModel):
    """A noun of the work. Field names are the field's own; every size in bytes, every time in seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _numbers(cls, value: Any, info: ValidationInfo) -> Any:
        """Numbers are written as numbers: `yes` is not 1, and "8" is not 8."""
        check_numbers(cls, str(info.field_name), value)
        return value

    @classmethod
    def read(cls, data: Any) -> Self:
        """Validate `data`, turning pydantic's report into one line.

        Raises:
            SpecError: naming the field and both sides of the broken rule.
        """
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            found = SpecError(one_line(error, data, cls))
            found.places = places(by_field(error.errors(include_url=False), data), cls)
            raise found from error
