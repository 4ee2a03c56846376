"""Statistics of the comparisons, per source and quantity."""

import csv
import io
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import mean, median
from typing import Any, Final, get_args

from planner.plan import Verdict
from planner.uncertainty import LEVELS
from planner.validate.comparison import QUANTITIES, Comparison, Quantity, kind_of
from planner.validate.ranking import Ranked, configuration_key, ranking_group, rankings, summary
from planner.validate.scenarios import named, open_choices
from planner.validate.verdicts import judged_rows, trade_off

ROW_COLUMNS: Final = (
    "source", "file", "line", "ref", "model", "gpu", "n_gpus", "quantity", "used", "reason", "measured", "predicted",
    "error", "unit", "low_80", "high_80", "low_90", "high_90", "class", "outcome", "verdict",
    "oom_probability", "assumed", "scenarios",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ValidationReport:
    """Everything that was compared."""

    comparisons: tuple[Comparison, ...]
    calibration: str
    problems: tuple[str, ...] = ()
    ignored_files: tuple[str, ...] = ()
    fitted_files: tuple[str, ...] = ()
    """Those on rows of which the calibration was fitted."""

    def sources(self) -> list[dict[str, Any]]:
        """One entry per source and quantity, in the order of their names."""
        entries = []
        for source in sorted({comparison.row.source for comparison in self.comparisons}):
            for quantity in QUANTITIES:
                of = [c for c in self.comparisons if c.row.source == source and c.quantity == quantity]
                if of:
                    entries.append(_entry(source, quantity, of))
        return entries

    def totals(self) -> list[dict[str, Any]]:
        """The same over all sources."""
        found = []
        for quantity in QUANTITIES:
            of = [c for c in self.comparisons if c.quantity == quantity]
            if of:
                found.append(_entry("all", quantity, of))
        return found

    def parts(self) -> list[dict[str, Any]]:
        """The same for the parts of sources that are of several kinds; `part` names them."""
        entries = []
        for source, part in sorted({(c.row.source, c.part) for c in self.comparisons if c.part}):
            for quantity in QUANTITIES:
                of = [c for c in self.comparisons if (c.row.source, c.part, c.quantity) == (source, part, quantity)]
                if of:
                    entries.append({**_entry(source, quantity, of), "part": part})
        return entries

    def ranking(self) -> list[dict[str, Any]]:
        """How well the configurations of one job were ordered by step time, per source; then over all."""
        found = rankings(
            Ranked(ranking_group(c.row), configuration_key(c.row), c.measured, c.predicted)
            for c in self.comparisons
            if c.quantity == "step_time" and c.measured is not None and c.predicted is not None
        )
        sources = sorted({ranking.group[0] for ranking in found})
        entries = [summary(source, [r for r in found if r.group[0] == source]) for source in sources]
        return [*entries, summary("all", found)] if found else []

    def verdict_curve(self) -> list[dict[str, Any]]:
        """Missed failures and false alarms over all rows, at every risk."""
        points = trade_off(judged_rows(self.comparisons))
        return [asdict(point) for point in points] if any(c.drawn for c in self.comparisons) else []

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data."""
        return {
            "sources": self.sources(),
            "totals": self.totals(),
            "parts": self.parts(),
            "ranking": self.ranking(),
            "verdict_curve": self.verdict_curve(),
            "calibration": self.calibration,
            "problems": list(self.problems),
            "ignored_files": list(self.ignored_files),
            "fitted_files": list(self.fitted_files),
        }

    def to_json(self) -> str:
        """The report as JSON."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def rows(self) -> list[dict[str, Any]]:
        """One mapping per row and quantity, used or skipped; keys are ROW_COLUMNS."""
        return [_row(comparison) for comparison in self.comparisons]

    def rows_csv(self) -> str:
        """The rows as CSV text."""
        text = io.StringIO()
        writer = csv.DictWriter(text, ROW_COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows())
        return text.getvalue()


def _entry(source: str, quantity: Quantity, of: Sequence[Comparison]) -> dict[str, Any]:
    used = [comparison for comparison in of if comparison.used]
    skipped = Counter(comparison.reason for comparison in of if not comparison.used)
    head: dict[str, Any] = {
        "source": source,
        "quantity": quantity,
        "rows": len(of),
        "used": len(used),
        "skipped": dict(sorted(skipped.items(), key=lambda item: (-item[1], item[0]))),
    }
    if quantity == "verdict":
        return head | _verdicts(used)
    return head | _errors(used) | (_classes(used) if quantity == "step_time" else {}) | _kinds(quantity, used)


def _classes(used: Sequence[Comparison]) -> dict[str, Any]:
    """How many rows are of a stack known from published runs, of its framework elsewhere, or of none; and the median
    width of what is said of them, upper over lower end: wide where little is known.
    """
    widths = {
        level: [c.intervals[level][1] / c.intervals[level][0] for c in used if level in c.intervals] for level in LEVELS
    }
    return {
        "classes": dict(sorted(Counter(str(c.known) for c in used if c.known).items())),
        "width": {level: _shown(median(found)) if found else None for level, found in widths.items()},
    }


def _kinds(quantity: Quantity, used: Sequence[Comparison]) -> dict[str, Any]:
    """Printed peaks by what they count, where they count several things."""
    found: dict[str, list[Comparison]] = {}
    for comparison in used if quantity == "peak_memory" else ():
        found.setdefault(str(kind_of(comparison)), []).append(comparison)
    if len(found) < 2:
        return {}
    return {"kinds": {kind: {"used": len(of)} | _errors(of) for kind, of in sorted(found.items())}}


def _errors(used: Sequence[Comparison]) -> dict[str, Any]:
    signed = [comparison.error for comparison in used if comparison.error is not None]
    absolute = sorted(abs(error) for error in signed)
    if not absolute:
        return dict.fromkeys(("median_ape", "mape", "p90_ape", "max_ape", "bias")) | {"coverage": _coverage(())}
    return {
        "median_ape": _shown(median(absolute)),
        "mape": _shown(mean(absolute)),
        "p90_ape": _shown(percentile(absolute, 0.9)),
        "max_ape": _shown(absolute[-1]),
        "bias": _shown(median(signed)),
        "coverage": _coverage(used),
        **open_choices(used),
    }


def percentile(ascending: Sequence[float], share: float) -> float:
    """The value below which `share` of the sorted values lie, interpolated between neighbours."""
    position = share * (len(ascending) - 1)
    low = int(position)
    high = min(low + 1, len(ascending) - 1)
    return ascending[low] + (position - low) * (ascending[high] - ascending[low])


def _coverage(used: Iterable[Comparison]) -> dict[str, float | None]:
    """Share of the measurements inside the interval that was predicted for them; None where none was."""
    found: dict[str, float | None] = {}
    rows = list(used)
    for level in ("80", "90"):
        inside = [
            comparison.intervals[level][0] <= comparison.measured <= comparison.intervals[level][1]
            for comparison in rows
            if level in comparison.intervals and comparison.measured is not None
        ]
        found[level] = _shown(sum(inside) / len(inside)) if inside else None
    return found


def _verdicts(used: Sequence[Comparison]) -> dict[str, Any]:
    """Counts: an OOM called a fit, a run called impossible, `at_risk` either way, clear calls that were right; and all
    of them, by what happened and what was called.
    """
    pairs = Counter((comparison.row.outcome, comparison.verdict) for comparison in used)
    return {
        "missed_oom": pairs["oom", "fits"],
        "false_oom": pairs["ok", "does_not_fit"],
        "at_risk": pairs["ok", "at_risk"] + pairs["oom", "at_risk"],
        "correct": pairs["ok", "fits"] + pairs["oom", "does_not_fit"],
        "confusion": {happened: {call: pairs[happened, call] for call in _CALLS} for happened in ("ok", "oom")},
    }


_CALLS: Final[tuple[Verdict, ...]] = get_args(Verdict)


def _shown(value: float) -> float:
    return float(f"{value:.6g}")


def _row(comparison: Comparison) -> dict[str, Any]:
    row = comparison.row
    bounds = {
        f"{side}_{level}": comparison.intervals[level][index] if level in comparison.intervals else ""
        for level in ("80", "90")
        for index, side in enumerate(("low", "high"))
    }
    values: dict[str, Any] = {
        "source": row.source, "file": row.file, "line": row.line, "ref": row.ref, "model": row.model, "gpu": row.gpu,
        "n_gpus": row.n_gpus, "quantity": comparison.quantity, "used": comparison.used, "reason": comparison.reason,
        "measured": comparison.measured, "predicted": comparison.predicted, "error": comparison.error,
        "unit": comparison.unit, "class": comparison.known, "outcome": row.outcome,
        "verdict": comparison.verdict, "oom_probability": comparison.drawn and comparison.drawn.oom_probability,
        "assumed": "; ".join(comparison.assumed), "scenarios": named(comparison.scenarios), **bounds,
    }  # fmt: skip
    return {key: "" if values[key] is None else values[key] for key in ROW_COLUMNS}
