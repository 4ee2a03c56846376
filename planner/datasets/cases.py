"""Reads user reports: one JSON object a line, as docs/cases.md describes. An absent or null field is not stated."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from planner.errors import DatasetUnreadable

SECTIONS: Final = ("model", "hardware", "config", "observed", "check")
_LARGEST: Final = 10**12
_MOST_BYTES: Final = 64 * 10**6


@dataclass(frozen=True, slots=True, kw_only=True)
class UserCase:
    """One report: what was run, what happened, and how a reader of the report sums it up."""

    line: int
    id: str
    ref: str = ""
    kind: str = ""
    method: str = ""
    themes: tuple[str, ...] = ()
    assumed_fields: frozenset[str] = frozenset()
    """Dotted names of fields that the collector filled in; the reporter did not state them."""
    model: Mapping[str, Any]
    hardware: Mapping[str, Any]
    config: Mapping[str, Any]
    observed: Mapping[str, Any]
    check: Mapping[str, Any]
    says: str = ""
    """What a good planner would have said."""
    note: str = ""

    def stated(self, section: str, key: str) -> Any:
        """A field of the question (model, hardware or config), None where it is not stated."""
        return dict(getattr(self, section)).get(key)

    def text(self, section: str, key: str) -> str:
        """The same in lower case, "" where not stated."""
        value = self.stated(section, key)
        return "" if value is None else str(value).lower()

    def number(self, section: str, key: str) -> float | None:
        """The same as a number; None where it is none, or beyond any that a report may mean."""
        value = self.stated(section, key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _LARGEST:
            return None
        return float(value)

    def size(self, section: str, key: str) -> float | None:
        """The same as a positive number."""
        value = self.number(section, key)
        return value if value is not None and value > 0 else None

    def whole(self, section: str, key: str) -> int | None:
        """The same as a positive whole number."""
        value = self.number(section, key)
        return int(value) if value is not None and value == int(value) and value >= 1 else None


@dataclass(frozen=True, slots=True)
class CaseFile:
    """What a file of reports holds."""

    name: str
    cases: tuple[UserCase, ...]
    problems: tuple[str, ...]
    """Lines that cannot be read, and why."""


def read_cases(path: Path) -> CaseFile:
    """Every report of a file.

    Raises:
        DatasetUnreadable: no such file, no text, too large, or no line of it is a report.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise DatasetUnreadable(f"{path.name}: {path.stat().st_size} bytes exceed the {_MOST_BYTES} of a case file")
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise DatasetUnreadable(f"{path.name}: not UTF-8 text: {error}") from error
    except OSError as error:
        raise DatasetUnreadable(f"{path}: {error.strerror or error}") from error
    cases: list[UserCase] = []
    problems: list[str] = []
    for number, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        try:
            cases.append(_case(number, json.loads(text)))
        except (ValueError, RecursionError) as error:
            problems.append(f"{path.name} line {number}: {str(error).splitlines()[0]}")
    if not cases:
        raise DatasetUnreadable(f"{path.name}: holds no report; {problems[0] if problems else 'the file is empty'}")
    return CaseFile(path.name, tuple(cases), tuple(problems))


def _case(line: int, data: Any) -> UserCase:
    if not isinstance(data, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004  read as a problem of the line
    sections: dict[str, Mapping[str, Any]] = {}
    for key in SECTIONS:
        value = data.get(key)
        if value is not None and not isinstance(value, dict):
            raise ValueError(f"{key} is {type(value).__name__}, not an object")
        sections[key] = value or {}
    return UserCase(
        line=line,
        id=str(data.get("id") or f"line-{line}"),
        ref=str(data.get("ref") or ""),
        kind=str(data.get("kind") or "unknown"),
        method=str(data.get("method") or "").lower(),
        themes=tuple(str(theme) for theme in data.get("themes") or ()),
        assumed_fields=frozenset(str(name) for name in data.get("assumed_fields") or ()),
        says=str(data.get("what_a_good_planner_says") or ""),
        note=str(data.get("note") or ""),
        **sections,
    )
