"""How far predicted peaks were off, by what kind of run and of peak they are."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from math import exp, log
from typing import Final

import numpy as np

from cost_models.calibration import Calibration, Factor
from planner.datasets.jobs import case_of
from planner.fitting.evidence import held_out
from planner.fitting.residuals import ENOUGH_FOR_OWN, quantile
from planner.measurement import Measurement
from planner.uncertainty import LEVELS, memory_class
from planner.validate.comparison import Comparison, compare, kind_of, shipped_pricing

Missed = tuple[str, float]
"""Source, and log of measured over predicted."""
_FEWEST: Final = 5
ERRORS_WIDER: Final = 1.0
"""Standard errors by which a share is raised: quantiles of few rows are too narrow for others."""


def peaks(rows: Iterable[Measurement], calibration: Calibration) -> list[Comparison]:
    """Predicted beside measured peaks of the rows that no judge holds out."""
    pricing = shipped_pricing(calibration)
    stated = [row for row in rows if row.states_memory and not held_out(row)]
    found = [comparison for row in stated for comparison in compare(row, calibration, pricing)]
    return [c for c in found if c.quantity.startswith("peak") and c.used and c.measured and c.predicted]


def memory_factors(found: Iterable[Comparison]) -> dict[str, Factor]:
    """Factors `memory_low` and `memory_high` by class of run, kind of peak and level, for `planner.uncertainty`."""
    groups: dict[str, list[Missed]] = defaultdict(list)
    seen: set[tuple[str, int, str]] = set()
    for comparison in found:
        kind, row = str(kind_of(comparison)), comparison.row
        if (row.file, row.line, kind) in seen:
            continue
        seen.add((row.file, row.line, kind))
        case = case_of(row)
        missed = f"{row.source} {comparison.part}", beyond(comparison)
        groups[f"{memory_class(case.job, case.configuration)}.{kind}"].append(missed)
        groups[f"any.{kind}"].append(missed)
    factors: dict[str, Factor] = {}
    for name, misses in sorted(groups.items()):
        if len(misses) >= (_FEWEST if name.startswith("any.") else ENOUGH_FOR_OWN):
            factors |= _interval_factors(name, misses)
    return factors


def beyond(comparison: Comparison) -> float:
    """Log of measured over predicted; over the nearest scenario where choices are open, 0 between two of them."""
    measured = float(comparison.measured or 0.0)
    sizes = [size for _, size in comparison.scenarios] or [float(comparison.predicted or 0.0)]
    low, high = min(sizes), max(sizes)
    return log(measured / high) if measured > high else log(measured / low) if measured < low else 0.0


def _interval_factors(name: str, misses: list[Missed]) -> dict[str, Factor]:
    counts = Counter(source for source, _ in misses)
    weight = np.array([counts[source] ** -0.5 for source, _ in misses])
    errors = np.array([error for _, error in misses])
    source = f"quantiles of {len(misses)} log errors, every source alike; outside the scenarios where choices are open"
    found: dict[str, Factor] = {}
    for level in LEVELS:
        share = float(level) / 100
        share += ERRORS_WIDER * (share * (1 - share) / len(misses)) ** 0.5
        low, high = (quantile(errors, weight, side) for side in ((1 - share) / 2, (1 + share) / 2))
        for side, value in (("low", min(low, 0.0)), ("high", max(high, 0.0))):
            found[f"memory_{side}.{name}.{level}"] = Factor(value=float(f"{exp(value):.4g}"), source=source)
    return found
