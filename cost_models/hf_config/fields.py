"""Typed access to the keys of one config.json: every complaint is one line naming the file, the key and the rule.

`null` and an absent key mean the same, as they do in transformers. Several spellings may be given for one number;
when a file states two of them they must agree.
"""

import difflib
import math
from collections.abc import Mapping
from typing import Any

from cost_models.errors import BrokenRule, MissingKey, SpecError
from cost_models.specs.model import LARGEST


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


class Fields:
    """One config.json, or one nested sub-config of it."""

    def __init__(
        self, data: Mapping[str, Any], where: str, prefix: str = "", defaults: Mapping[str, Any] | None = None
    ) -> None:
        """Read `data` found at `where`; keys are shown with `prefix`, and `defaults` stand in for absent keys."""
        self._data, self._defaults = data, defaults or {}
        self.where, self.prefix = where, prefix
        self.assumed: list[str] = []
        self._consulted: set[str] = set()

    def stated(self, key: str) -> Any:
        """The value of a key, its sub-config default, or None."""
        self._consulted.add(key)
        value = self._data.get(key)
        return self._defaults.get(key) if value is None else value

    def has(self, *keys: str) -> bool:
        """Whether any of the spellings is stated."""
        return any(self.stated(key) is not None for key in keys)

    def written(self) -> tuple[str, ...]:
        """All keys written."""
        return tuple(self._data)

    def misspelt(self) -> tuple[str, str] | None:
        """A written key that no reader asked for but that is close to one: `(written, meant)`."""
        for key in self._data:
            near = difflib.get_close_matches(key, self._consulted, n=1, cutoff=0.9)
            if key not in self._consulted and near:
                return key, near[0]
        return None

    def mentions(self, key: str) -> bool:
        """Whether the key is written, `null` included: null turns a window off, absence leaves the class default."""
        return key in self._data or key in self._defaults

    def assume(self, key: str, value: Any, why: str) -> None:
        """Record what a convention filled in."""
        shown = str(value).lower() if isinstance(value, bool) else value
        text = f"{self.prefix}{key}={shown} ({why})"
        if text not in self.assumed:
            self.assumed.append(text)

    def error(self, key: str, value: Any, rule: str) -> SpecError:
        """`where: key value rule`, to be raised."""
        return SpecError(f"{self.where}: {self.prefix}{key} {_shown(value)} {rule}")

    def missing(self, key: str, why: str = "") -> MissingKey:
        """The error for an absent key, to be raised."""
        return MissingKey(self.prefix + key, self.where, why)

    def _whole(self, key: str, value: Any, least: int, most: int) -> int:
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        if isinstance(value, bool) or not whole or not least <= value <= most:
            raise self.error(key, value, f"is not a whole number from {least} to {most}")
        return int(value)

    def optional_integer(self, *keys: str, least: int = 1, most: int = LARGEST) -> int | None:
        """A whole number under any of its spellings, or None when none is stated.

        Raises:
            SpecError: not a whole number within the bounds.
            BrokenRule: two spellings disagree.
        """
        found = {key: self._whole(key, self.stated(key), least, most) for key in keys if self.has(key)}
        if not found:
            return None
        first = next(iter(found))
        for key, value in found.items():
            if value != found[first]:
                raise BrokenRule(f"{self.where}: {self.prefix}{first} {found[first]} and {key} {value} disagree")
        return found[first]

    def integer(self, *keys: str, default: int | None = None, least: int = 1, most: int = LARGEST) -> int:
        """A whole number; `default` only where the family's own config class has one.

        Raises:
            MissingKey: not stated and without a default.
            SpecError: as `optional_integer`.
        """
        value = self.optional_integer(*keys, least=least, most=most)
        if value is None and default is None:
            raise self.missing(keys[0], f"also spelled {', '.join(keys[1:])}" if keys[1:] else "")
        return default if value is None else value  # type: ignore[return-value]

    def size(self, *keys: str, default: int | None, least: int = 1) -> int:
        """As `integer`, for sizes that cost memory or time: taking the config class's default is recorded.

        Raises:
            MissingKey, SpecError: as `integer`.
        """
        if default is not None and not self.has(*keys):
            self.assume(keys[0], default, "default of its config class in transformers")
        return self.integer(*keys, default=default, least=least)

    def optional_number(self, key: str) -> float | None:
        """A finite positive number, or None.

        Raises:
            SpecError: anything else.
        """
        value = self.stated(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
            raise self.error(key, value, "is not a positive number")
        return float(value)

    def flag(self, *keys: str, default: bool) -> bool:
        """True or false under the first spelling stated.

        Raises:
            SpecError: anything else.
        """
        for key in keys:
            value = self.stated(key)
            if value is not None:
                if not isinstance(value, bool):
                    raise self.error(key, value, "is not true or false")
                return value
        return default

    def text(self, *keys: str, default: str) -> str:
        """A string under the first spelling stated.

        Raises:
            SpecError: anything else.
        """
        for key in keys:
            value = self.stated(key)
            if value is not None:
                if not isinstance(value, str):
                    raise self.error(key, value, "is not a string")
                return value
        return default

    def sequence(self, key: str) -> list[Any] | None:
        """A list, or None.

        Raises:
            SpecError: anything else.
        """
        value = self.stated(key)
        if value is None:
            return None
        if not isinstance(value, list | tuple):
            raise self.error(key, value, "is not a list")
        return list(value)

    def integers(self, key: str) -> list[int] | None:
        """A list of whole numbers (layer indices), or None.

        Raises:
            SpecError: anything else.
        """
        values = self.sequence(key)
        return None if values is None else [self._whole(key, value, 0, LARGEST) for value in values]

    def mapping(self, key: str) -> Mapping[str, Any] | None:
        """A nested object, or None.

        Raises:
            SpecError: anything else.
        """
        value = self.stated(key)
        if value is not None and not isinstance(value, Mapping):
            raise self.error(key, value, "is not an object")
        return value

    def nested(self, key: str, defaults: Mapping[str, Any] | None = None) -> "Fields":
        """The fields of a nested object; an absent one reads as empty.

        Raises:
            SpecError: the value is no object.
        """
        return Fields(self.mapping(key) or {}, self.where, f"{self.prefix}{key}.", defaults)
