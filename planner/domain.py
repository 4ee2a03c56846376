"""Domains: what a request allows one decision to be. Pinned, listed, ranged or forbidden, in one normal form."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from pydantic import model_serializer, model_validator

from cost_models.specs.base import Spec
from cost_models.specs.model import BrokenRuleValue

Value = int | str | bool
MOST_VALUES: Final = 64
"""Most values that one decision lists or forbids; more are a range."""
_MOST_SHOWN: Final = 8
"""Values that a message lists."""
_LONGEST_SHOWN: Final = 60
"""Characters of a user's value that a message repeats."""


def _listed(values: Iterable[Value]) -> str:
    texts = [str(value) for value in values]
    return ", ".join(texts[:_MOST_SHOWN]) + (f", ... ({len(texts)} in all)" if len(texts) > _MOST_SHOWN else "")


class Domain(Spec):
    """Allowed are the `values` if any are listed, between `min` and `max`, except those in `forbid`."""

    values: tuple[Value, ...] | None = None
    min: int | None = None
    max: int | None = None
    forbid: tuple[Value, ...] = ()

    @model_validator(mode="after")
    def _ordered(self) -> "Domain":
        if self.min is not None and self.max is not None and self.min > self.max:
            raise BrokenRuleValue(f"min {self.min} exceeds max {self.max}")
        if self.values is not None and not any(self.allows(value) for value in self.values):
            raise BrokenRuleValue(f"nothing is left of [{_listed(self.values)}] after min, max and forbid")
        return self

    @model_serializer
    def _stated(self) -> dict[str, Any]:
        """Only what is stated, so that equal domains are written alike."""
        stated: dict[str, Any] = {
            "values": self.values,
            "min": self.min,
            "max": self.max,
            "forbid": self.forbid or None,
        }
        return {key: list(v) if isinstance(v, tuple) else v for key, v in stated.items() if v is not None}

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> Any:
        """Beside the normal form, the short forms that a request may use."""
        value = {"anyOf": [{"type": "integer"}, {"type": "boolean"}, {"type": "string"}]}
        bounds = {name: {"type": "integer"} for name in ("min", "max")}
        lists = {name: {"type": "array", "items": value} for name in ("values", "forbid")}
        mapping = {"type": "object", "properties": bounds | lists, "additionalProperties": False}
        return {"anyOf": [*value["anyOf"], {"type": "array", "items": value, "minItems": 1}, mapping]}

    def allows(self, value: Value) -> bool:
        """Whether a decision may take this value."""
        if self.values is not None and value not in self.values:
            return False
        if value in self.forbid:
            return False
        if self.min is not None and int(value) < self.min:
            return False
        return self.max is None or int(value) <= self.max

    def among(self, candidates: Iterable[Value]) -> tuple[Value, ...]:
        """The candidates allowed, in their order."""
        return tuple(value for value in candidates if self.allows(value))

    def __str__(self) -> str:
        """As a person would write it."""
        parts = []
        if self.values is not None:
            parts.append("one of " + _listed(self.values) if len(self.values) > 1 else str(self.values[0]))
        if self.min is not None:
            parts.append(f"at least {self.min}")
        if self.max is not None:
            parts.append(f"at most {self.max}")
        if self.forbid:
            parts.append("not " + _listed(self.forbid))
        return " and ".join(parts) or "anything"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def _typed(value: Any, kind: str, legal: Sequence[Value] | None, least: int) -> Value:
    if kind == "flag":
        if not isinstance(value, bool):
            raise BrokenRuleValue(f"{_shown(value)} is not true or false")
        return value
    if kind == "name":
        if legal is not None and value not in legal:
            raise BrokenRuleValue(f"{_shown(value)} is not one of {', '.join(map(str, legal))}")
        return str(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise BrokenRuleValue(
            f"{_shown(value)} is not an integer, a list of integers, {{min: ..., max: ...}} or {{forbid: [...]}}"
        )
    if value < least or (legal is not None and value not in legal):
        rule = f"one of {', '.join(map(str, legal))}" if legal is not None else f"at least {least}"
        raise BrokenRuleValue(f"{value} must be {rule}")
    return value


def parse_domain(
    raw: Any, *, kind: str, legal: Sequence[Value] | None = None, least: int = 1, off: Value | None = None
) -> Domain:
    """The normal form of what a person wrote.

    `2`, `[1, 2, 4]`, `{min: 2, max: 8}`, `{forbid: [3]}`, and `forbid` alone where the decision can be switched `off`.

    Raises:
        BrokenRuleValue: it is none of these, or a value is outside the `legal` ones.
    """
    if isinstance(raw, Domain):
        return raw
    if raw == "forbid" and off is not None:
        return Domain(values=(off,))
    if isinstance(raw, dict):
        unknown = sorted(set(raw) - {"values", "min", "max", "forbid"})
        if unknown:
            raise BrokenRuleValue(f"unknown key {_shown(unknown[0])}; a domain has values, min, max, forbid")
        if kind != "integer" and {"min", "max"} & set(raw):
            raise BrokenRuleValue(
                f"min and max order integers only; list the values among {', '.join(map(str, legal or ()))}"
            )
        lists = {k: _each(raw[k], kind, legal, least) for k in ("values", "forbid") if raw.get(k) is not None}
        bounds = {k: int(_typed(raw[k], kind, None, 0)) for k in ("min", "max") if raw.get(k) is not None}
        return Domain(values=lists.get("values"), forbid=lists.get("forbid", ()), **bounds)
    values = _each(raw, kind, legal, least)
    if not values:
        raise BrokenRuleValue("an empty list allows nothing; leave the key out to allow everything")
    return Domain(values=values)


def _each(raw: Any, kind: str, legal: Sequence[Value] | None, least: int) -> tuple[Value, ...]:
    items = raw if isinstance(raw, list | tuple) else [raw]
    if len(items) > MOST_VALUES:
        raise BrokenRuleValue(f"{len(items)} values are listed, the limit is {MOST_VALUES}; use min and max")
    typed = dict.fromkeys(_typed(item, kind, legal, least) for item in items)
    return tuple(sorted(typed, key=lambda v: (v if kind == "integer" else 0, str(v))))
