"""What was measured: one JSON line a run, written through as soon as it is known."""

import os
from pathlib import Path
from typing import Any

from cost_models.specs.base import Spec


class Row(Spec):
    """One run of one configuration."""

    name: str
    request: dict[str, Any]
    """All but the cluster, which is the probe's."""
    outcome: str
    step_seconds: float | None
    step_spread: float | None
    """Interquartile range of the timed steps over their median: a busy machine shows here."""
    allocated_bytes: int | None
    resident_bytes: int | None
    first_loss: float | None
    last_loss: float | None
    cpu_seconds: float | None
    """Processor time of a step, median: far below the step where other processes used the cores."""
    versions: dict[str, str]


def append(path: Path, row: Row) -> None:
    """Add one line, complete or not at all."""
    with path.open("a", encoding="utf-8") as file:
        file.write(row.model_dump_json() + "\n")
        file.flush()
        os.fsync(file.fileno())


def read(path: Path) -> list[Row]:
    """The rows; a last line that was cut off is taken away."""
    if not path.is_file():
        return []
    text = path.read_text(encoding="utf-8")
    if not text.endswith("\n"):
        text = text[: text.rfind("\n") + 1]
        path.write_text(text, encoding="utf-8")
    return [Row.model_validate_json(line) for line in text.splitlines() if line]
