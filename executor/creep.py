"""Whether what a process holds grows from step to step, told from the ups and downs of a heap."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

FEWEST: Final = 8
"""Samples from which a trend can be told."""
_CLEAR: Final = 3.0
"""Times the scatter about the line that the growth must be. Of scatter alone a line rises by less."""
_STEADY: Final = 0.5
"""Of the pace over all samples, what the later half must keep: a heap that fills and stays is none that leaks."""


@dataclass(frozen=True, slots=True)
class Trend:
    """Growth that goes on."""

    per_step: float
    """[bytes]"""
    growth: float
    """Over the samples, as a share of the first."""
    steps: int
    held: int
    """At last. [bytes]"""


def trend(samples: Sequence[tuple[int, int]]) -> Trend | None:
    """The growth in samples of (steps done, bytes), where it is one: a median slope well above the scatter about it.

    The slope is the median of those of all pairs (Theil and Sen): a quarter of the samples may be off at will.
    """
    if len(samples) < FEWEST:
        return None
    slope = _slope(samples)
    line = statistics.median(size - slope * step for step, size in samples)
    scatter = statistics.median(abs(size - slope * step - line) for step, size in samples)
    steps = samples[-1][0] - samples[0][0]
    start = line + slope * samples[0][0]
    if slope <= 0 or start <= 0 or slope * steps <= _CLEAR * scatter:
        return None
    if _slope(samples[len(samples) // 2 :]) < _STEADY * slope:
        return None
    return Trend(per_step=slope, growth=slope * steps / start, steps=steps, held=samples[-1][1])


def _slope(samples: Sequence[tuple[int, int]]) -> float:
    """Median slope of all pairs. [bytes a step]"""
    return statistics.median((b - a) / (y - x) for (x, a), (y, b) in combinations(samples, 2) if y > x)
