"""Reads files of the common measurement header."""

import csv
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cost_models.specs.fields import LARGEST_INTEGER
from planner.datasets.notes import read_notes
from planner.errors import DatasetUnreadable
from planner.measurement import HEADER, NUMBERS, TEXTS, WHOLE_NUMBERS, Measurement

_MOST_BYTES = 64 * 10**6


@dataclass(frozen=True, slots=True)
class Dataset:
    """What a folder holds."""

    measurements: tuple[Measurement, ...]
    problems: tuple[str, ...]
    """Cells that cannot be read: file, line, column, and why."""
    ignored: tuple[str, ...]
    """CSV files of another header, with the first column they lack."""


def read_directory(path: Path) -> Dataset:
    """Every CSV of the common header in a folder, or the one file named.

    Raises:
        DatasetUnreadable: no such folder, no CSV in it, or none of the common header.
    """
    if not path.exists():
        raise DatasetUnreadable(f"{path}: no such folder")
    files = sorted(path.glob("*.csv")) if path.is_dir() else [path]
    if not files:
        raise DatasetUnreadable(f"{path}: holds no .csv file")
    measurements: list[Measurement] = []
    problems: list[str] = []
    ignored: list[str] = []
    for file in files:
        rows, complaints, missing = _read_file(file)
        measurements += rows
        problems += complaints
        if missing:
            ignored.append(f"{file.name}: not the common header: column {missing[0]} is missing")
    if len(ignored) == len(files):
        raise DatasetUnreadable(f"{path}: no file of the common header; {ignored[0]}")
    return Dataset(tuple(measurements), tuple(problems), tuple(ignored))


def _read_file(file: Path) -> tuple[list[Measurement], list[str], list[str]]:
    if file.stat().st_size > _MOST_BYTES:
        raise DatasetUnreadable(
            f"{file.name}: {file.stat().st_size} bytes exceed the {_MOST_BYTES} a measurement file may have"
        )
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (UnicodeDecodeError, OSError) as error:
        raise DatasetUnreadable(f"{file.name}: not UTF-8 text: {error}") from error
    reader = csv.reader(text.splitlines(keepends=True))
    rows: list[Measurement] = []
    problems: list[str] = []
    columns: list[str] | None = None
    try:
        for cells in reader:
            if columns is None:
                columns = [cell.strip() for cell in cells]
                missing = [key for key in HEADER if key not in columns]
                if missing:
                    return [], [], missing
                continue
            if any(cell.strip() for cell in cells):
                row, complaints = _row(file.name, reader.line_num, columns, cells)
                rows.append(row)
                problems += complaints
    except csv.Error as error:
        raise DatasetUnreadable(f"{file.name} line {reader.line_num}: not CSV: {error}") from error
    return rows, problems, list(HEADER[:1]) if columns is None else []


def _row(file: str, line: int, columns: list[str], cells: list[str]) -> tuple[Measurement, list[str]]:
    stated = {key: cell.strip() for key, cell in zip(columns, cells, strict=False)}
    values: dict[str, Any] = {key: stated[key] for key in TEXTS if stated.get(key)}
    problems, unreadable = [], []
    for key, value, complaint in _numbers(stated):
        values[key] = value
        if complaint:
            unreadable.append(key)
            problems.append(f"{file} line {line} column {key}: {complaint}")
    if len(cells) != len(columns):
        unreadable.append("row")
        problems.append(f"{file} line {line}: {len(cells)} cells under a header of {len(columns)}")
    facts = read_notes(stated.get("notes", ""))
    return Measurement(file=file, line=line, facts=facts, unreadable=tuple(unreadable), **values), problems


def _numbers(stated: dict[str, str]) -> Iterable[tuple[str, int | float | None, str]]:
    for key in (*WHOLE_NUMBERS, *NUMBERS):
        cell = stated.get(key, "")
        if not cell:
            continue
        try:
            value = float(cell)
        except ValueError:
            yield key, None, f"{cell[:40]!r} is not a number"
            continue
        if not math.isfinite(value):
            yield key, None, f"{cell[:40]!r} is not finite"
        elif value < 0 or (value == 0 and key != "zero_stage"):
            yield key, None, f"{cell[:40]!r} is not positive"
        elif key in WHOLE_NUMBERS and value != int(value):
            yield key, None, f"{cell[:40]!r} is not a whole number"
        elif key in WHOLE_NUMBERS and value > LARGEST_INTEGER:
            yield key, None, f"{cell[:40]!r} is more than {LARGEST_INTEGER}"
        else:
            yield key, int(value) if key in WHOLE_NUMBERS else value, ""
