"""The gap between two predictions below which their order says nothing."""

from collections import defaultdict
from collections.abc import Iterable
from itertools import combinations
from statistics import median
from typing import Any

from planner.fitting.residuals import Missed
from planner.validate.ranking import FEWEST, ranking_group


def ranking_noise(misses: Iterable[Missed]) -> tuple[float, int]:
    """The log gap that the errors of two configurations of one job typically undo, and the pairs behind it."""
    groups: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for missed in misses:
        groups[ranking_group(missed.sample.row)].append(missed.error)
    per_group, pairs = [], 0
    for errors in groups.values():
        if len(errors) >= FEWEST:
            gaps = [abs(a - b) for a, b in combinations(errors, 2)]
            pairs += len(gaps)
            per_group.append(median(gaps))
    return (median(per_group) if per_group else 0.0), pairs
