"""Errors of the ledger against tracker rows: per file and phase, and per architecture and variant."""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from statistics import fmean, median, quantiles
from typing import Any, Final

from planner.errors import DatasetUnreadable
from planner.validate.tracker import PHASES, Compared, compared, read

WORST_EQUAL: Final = 0.005
"""Largest relative error of a total at which a ledger is said to equal the tracker."""
_COLUMNS: Final = ("model", "architecture", "variant", "phase", "tracked_bytes", "predicted_bytes", "error")


@dataclass(frozen=True, kw_only=True)
class TrackerReport:
    """Every row of some tracker files."""

    source: str
    rows: tuple[Compared, ...]
    skipped: Mapping[str, int]

    def entries(self) -> list[dict[str, Any]]:
        """One entry per phase, the whole step first."""
        return [self._entry(phase) for phase in PHASES]

    def _entry(self, phase: str) -> dict[str, Any]:
        errors = [row.error(phase) for row in self.rows if phase in row.tracked]
        sizes = sorted(abs(error) for error in errors)
        skipped = dict(self.skipped)
        if without := len(self.rows) - len(errors):
            skipped["the row does not state this phase"] = without
        return {
            "source": self.source,
            "quantity": "tracker_memory",
            "part": phase,
            "rows": len(self.rows) + sum(self.skipped.values()),
            "used": len(errors),
            "skipped": skipped,
            "median_ape": median(sizes) if sizes else None,
            "mape": fmean(sizes) if sizes else None,
            "p90_ape": quantiles(sizes, n=10, method="inclusive")[-1] if len(sizes) > 1 else _first(sizes),
            "max_ape": sizes[-1] if sizes else None,
            "bias": fmean(errors) if errors else None,
            "coverage": {"80": None, "90": None},
        }

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON."""
        return {"sources": self.entries(), "architectures": architectures(self.rows)}

    def rows_csv(self) -> str:
        """Every row and phase."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(_COLUMNS)
        for row in self.rows:
            for phase, tracked in row.tracked.items():
                predicted = row.predicted[phase]
                name = row.row["model"], row.model.model_type, variant(row), phase
                writer.writerow((*name, f"{tracked:.0f}", f"{predicted:.0f}", f"{predicted / tracked - 1:.3e}"))
        return out.getvalue()


def _first(sizes: Sequence[float]) -> float | None:
    return sizes[0] if sizes else None


def report(path: Path, *, progress: Callable[[int, int], None] | None = None) -> TrackerReport:
    """Compare a file; `progress` is called with rows done and rows in all.

    Raises:
        DatasetUnreadable: the file cannot be read, or is no tracker file.
    """
    try:
        rows = read(path)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DatasetUnreadable(f"--tracker {path}: {error}") from error
    found, skipped = compared(rows, progress)
    return TrackerReport(source=path.stem, rows=tuple(found), skipped=skipped)


def shipped() -> tuple[Compared, ...]:
    """All rows that are shipped, compared."""
    folder = Path(str(files("calibration_data") / "tracker"))
    return tuple(row for path in sorted(folder.glob("*.csv")) for row in compared(read(path))[0])


def variant(row: Compared) -> str:
    """What of a row's training decides its ledger, in words."""
    columns = row.row
    parts = [columns["attn"]]
    parts += [columns["precision"].partition("(")[0]] if columns["precision"] != "bf16-pure" else []
    parts += ["recompute"] if columns["recompute"] == "full" else []
    parts += ["padded"] if columns.get("padded") == "1" else []
    adapters = columns["model"].partition("+")[2]
    if adapters:
        parts.append("qlora" if columns.get("four_bit") == "1" else "lora")
        parts += ["attention only"] if columns.get("lora") not in (None, "", "all-linear") else []
    parts += ["sharded"] if columns["sharding(world)"] != "1" else []
    return ", ".join(parts)


def architectures(rows: Iterable[Compared]) -> list[dict[str, Any]]:
    """Worst and mean error of every architecture, and of its variants."""
    by_type: dict[str, list[Compared]] = {}
    for row in rows:
        by_type.setdefault(row.model.model_type, []).append(row)
    return [_architecture(name, by_type[name]) for name in sorted(by_type)]


def _architecture(name: str, rows: Sequence[Compared]) -> dict[str, Any]:
    variants: dict[str, list[float]] = {}
    for row in rows:
        variants.setdefault(variant(row), []).append(abs(row.error()))
    errors = [error for each in variants.values() for error in each]
    worst = {key: max(values) for key, values in sorted(variants.items())}
    return {
        "architecture": name,
        "models": sorted({row.row["model"].partition("+")[0] for row in rows}),
        "rows": len(errors),
        "mean_error": fmean(errors),
        "worst_error": max(errors),
        "variants": worst,
        "equal": [key for key, error in worst.items() if error <= WORST_EQUAL],
        "differs": [key for key, error in worst.items() if error > WORST_EQUAL],
    }


def render_tracker(found: TrackerReport) -> Any:
    """Errors per phase and per architecture, as tables."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    phases = Table(title=f"{found.source}: ledger against PyTorch's tracker", title_justify="left", box=None)
    for index, name in enumerate(("phase", "rows", "used", "median", "mean", "p90", "worst", "bias")):
        phases.add_column(name, justify="left" if index == 0 else "right")
    for entry in found.entries():
        numbers = [_percent(entry[key]) for key in ("median_ape", "mape", "p90_ape", "max_ape", "bias")]
        phases.add_row(entry["part"], str(entry["rows"]), str(entry["used"]), *numbers)
    skipped = [Text(f"skipped {count}: {reason}") for reason, count in found.skipped.items()]
    return Group(phases, *skipped, render_architectures(architectures(found.rows)))


def render_architectures(entries: Sequence[Mapping[str, Any]]) -> Any:
    """One line per architecture."""
    from rich.table import Table

    table = Table(title="Total by architecture", title_justify="left", box=None)
    for index, name in enumerate(("architecture", "rows", "mean", "worst", "equals the tracker", "differs")):
        table.add_column(name, justify="right" if index in (1, 2, 3) else "left", overflow="fold")
    for entry in entries:
        table.add_row(
            entry["architecture"], str(entry["rows"]), _percent(entry["mean_error"]), _percent(entry["worst_error"]),
            "; ".join(entry["equal"]), "; ".join(entry["differs"]),
        )  # fmt: skip
    return table


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.3f} %"
