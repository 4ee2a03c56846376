"""Reads files of the common measurement header."""

import csv
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from planner.datasets.notes import read_notes
from planner.datasets.numbers import read_number, unit_of
from planner.errors import DatasetUnreadable
from planner.measurement import HEADER, NUMBERS, TEXTS, WHOLE_NUMBERS, Measurement

_MOST_BYTES = 64 * 10**6
NEEDED: Final = ("model", "gpu", "framework")
"""Columns without which a file is of another header; any other that is missing is read as empty."""
MEASURED: Final = ("step_time_s", "tokens_per_s_per_gpu", "samples_per_s", "peak_mem_gb", "outcome")
"""A file of measurements has at least one of these."""
_OUTCOMES: Final = (
    (r"oom|out[- ]of[- ]memory", "oom"), (r"ok|ran|pass(?:ed)?|success(?:ful)?|completed|done|true|yes", "ok"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Dataset:
    """What a folder holds."""

    measurements: tuple[Measurement, ...]
    problems: tuple[str, ...]
    """Cells that cannot be read: file, line, column, and why."""
    ignored: tuple[str, ...]
    """CSV files of another header, with the first column they lack."""
    files: tuple[str, ...] = ()
    """CSV files of the common header, with rows or without."""


def read_directory(path: Path) -> Dataset:
    """Every CSV of the common header in a folder, or the one file named.

    Raises:
        DatasetUnreadable: no such folder, no CSV in it, or none of the common header.
    """
    if not path.exists():
        raise DatasetUnreadable(f"{path}: no such folder")
    files = sorted(file for file in path.iterdir() if file.suffix.lower() == ".csv") if path.is_dir() else [path]
    if not files:
        raise DatasetUnreadable(f"{path}: holds no .csv file")
    measurements: list[Measurement] = []
    problems: list[str] = []
    ignored: list[str] = []
    read: list[str] = []
    for file in files:
        try:
            rows, complaints, missing = _read_file(file)
        except DatasetUnreadable as unreadable:
            ignored.append(str(unreadable))
            continue
        measurements += rows
        problems += complaints
        if missing:
            ignored.append(f"{file.name}: not the common header: column {missing} is missing")
        else:
            read.append(file.name)
    if len(ignored) == len(files):
        raise DatasetUnreadable(f"{path}: no file of the common header; {ignored[0]}")
    return Dataset(tuple(measurements), tuple(problems), tuple(ignored), tuple(read))


def _read_file(file: Path) -> tuple[list[Measurement], list[str], str]:
    """Rows, complaints, and the column for want of which the file is none of measurements."""
    if file.stat().st_size > _MOST_BYTES:
        raise DatasetUnreadable(
            f"{file.name}: {file.stat().st_size} bytes exceed the {_MOST_BYTES} a measurement file may have"
        )
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (UnicodeDecodeError, OSError) as error:
        raise DatasetUnreadable(f"{file.name}: not UTF-8 text: {error}") from error
    reader = csv.reader(text.splitlines(keepends=True), delimiter=_delimiter(text))
    rows: list[Measurement] = []
    problems: list[str] = []
    columns: list[str] | None = None
    try:
        for cells in reader:
            if columns is None:
                columns = [cell.strip().lower() for cell in cells]
                if missing := _wanting(columns):
                    return [], [], missing
                absent = [key for key in HEADER if key not in columns]
                problems += [f"{file.name}: no column {', '.join(absent)}: read as empty"] if absent else []
                continue
            if any(cell.strip() for cell in cells):
                row, complaints = _row(file, reader.line_num, columns, cells)
                rows.append(row)
                problems += complaints
    except csv.Error as error:
        raise DatasetUnreadable(f"{file.name} line {reader.line_num}: not CSV: {error}") from error
    return rows, problems, HEADER[0] if columns is None else ""


def _delimiter(text: str) -> str:
    """Comma, or the semicolon or tab of spreadsheets, whichever the header has most of."""
    first = text.partition("\n")[0]
    return max(",;\t", key=first.count)


def _wanting(columns: list[str]) -> str:
    missing = next((key for key in NEEDED if key not in columns), "")
    return missing or ("" if any(key in columns for key in MEASURED) else MEASURED[0])


def _row(file: Path, line: int, columns: list[str], cells: list[str]) -> tuple[Measurement, list[str]]:
    stated = {key: cell.strip() for key, cell in zip(columns, cells, strict=False)}
    values: dict[str, Any] = {key: stated[key] for key in TEXTS if stated.get(key)}
    values["outcome"] = _outcome(stated.get("outcome", ""))
    values.setdefault("source", file.stem)
    problems, unreadable = [], []
    for key in (*WHOLE_NUMBERS, *NUMBERS):
        if not stated.get(key):
            continue
        values[key], complaint = read_number(key, stated[key])
        if complaint:
            unreadable.append(key)
            problems.append(f"{file.name} line {line} column {key}: {complaint}")
    if len(cells) < len(columns) or any(cell.strip() for cell in cells[len(columns) :]):
        unreadable.append("row")
        problems.append(f"{file.name} line {line}: {len(cells)} cells under a header of {len(columns)}")
    facts = read_notes(stated.get("notes", ""))
    if unit := unit_of(stated.get("peak_mem_gb", "")):
        facts["memory_unit"] = unit
    return Measurement(file=file.name, line=line, facts=facts, unreadable=tuple(unreadable), **values), problems


def _outcome(text: str) -> str:
    """`ok` or `oom` where the text says either; else the text."""
    return next((name for pattern, name in _OUTCOMES if re.match(pattern, text.lower())), text)
