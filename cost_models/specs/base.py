"""The base of every noun: frozen, closed to unknown keys, one-line errors."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator

from cost_models.errors import SpecError
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


_SCALARS = (bool, int, float, str, type(None))
_LONGEST = 60


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _path(complaint: Any, data: Any) -> str:
    """Dotted path of a complaint."""
    return ".".join(steps(complaint, data))


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
            raise SpecError(one_line(error, data, cls)) from error
