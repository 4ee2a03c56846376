"""The base of every noun: frozen, closed to unknown keys, one-line errors."""

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from cost_models.errors import SpecError


def one_line(error: ValidationError) -> str:
    """The first complaint of pydantic as `field: message`, with the count of the others."""
    first, *others = error.errors(include_url=False)
    where = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    text = f"{where}: {message}" if where else message
    return text + (f" (and {len(others)} more)" if others else "")


class Spec(BaseModel):
    """A noun of the work. Field names are the field's own; every size in bytes, every time in seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def read(cls, data: Any) -> Self:
        """Validate `data`, turning pydantic's report into one line.

        Raises:
            SpecError: naming the field and both sides of the broken rule.
        """
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise SpecError(one_line(error)) from error
