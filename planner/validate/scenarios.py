"""Errors of rows that state everything apart from those that leave a choice open, such as attention under `auto`."""

from collections.abc import Sequence
from statistics import mean, median
from typing import Any

from planner.validate.comparison import Comparison


def open_choices(used: Sequence[Comparison]) -> dict[str, Any]:
    """Two blocks, empty where no row leaves anything open.

    `stated`: errors of the rows that state every choice. `open`: of the others, how many measurements lie inside the
    scenarios that are reported for them (from the lowest to the highest, with the interval of 90 % around both ends),
    and how far apart the scenarios are (highest over lowest, median).
    """
    undecided = [c for c in used if c.scenarios]
    if not undecided:
        return {}
    stated = sorted(abs(c.error) for c in used if not c.scenarios and c.error is not None)
    inside = [
        c.intervals["90"][0] <= c.measured <= c.intervals["90"][1]
        for c in undecided
        if c.measured is not None and "90" in c.intervals
    ]
    spreads = [max(size for _, size in c.scenarios) / min(size for _, size in c.scenarios) for c in undecided]
    return {
        "stated": {
            "used": len(stated),
            "median_ape": _shown(median(stated)) if stated else None,
            "mape": _shown(mean(stated)) if stated else None,
        },
        "open": {
            "used": len(undecided),
            "covered": _shown(sum(inside) / len(inside)) if inside else None,
            "spread": _shown(median(spreads)),
        },
    }


def named(scenarios: Sequence[tuple[str, float]]) -> str:
    """The scenarios of one row as text: `name: bytes`."""
    return "; ".join(f"{name}: {size:.6g}" for name, size in scenarios)


def _shown(value: float) -> float:
    return float(f"{value:.6g}")
