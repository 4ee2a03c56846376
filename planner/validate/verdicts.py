"""Fits or not on measured rows, at every risk: what a cautious and a bold planner would have said.

A row is called fitting at a risk when its probability of running out of memory is at most that risk.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import comb
from typing import Final

from planner.measurement import Measurement
from planner.validate.comparison import OOM_RISK, Comparison

RISKS: Final = (0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.001)
HEADROOM: Final = 0.10
"""A run that left more than this share of its device free should have been called fitting."""
_CONFIDENCE: Final = 0.95


@dataclass(frozen=True, slots=True)
class JudgedRow:
    """A measured row with the probability that it would run out of memory."""

    row: Measurement
    oom_probability: float
    headroom: float | None
    """Share of the device that the run left free; None where no peak is stated."""

    @property
    def out_of_memory(self) -> bool:
        """Whether it did."""
        return self.row.outcome == "oom"


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """All rows at one risk."""

    risk: float
    oom_rows: int
    missed: int
    """Ran out of memory and was called fitting."""
    missed_at_most: float
    """Upper end of the share of missed failures that these rows are compatible with, at 95 % confidence."""
    roomy_rows: int
    false_alarms: int
    """Ran with more than HEADROOM free and was called anything but fitting."""


def judged_rows(comparisons: Iterable[Comparison]) -> tuple[JudgedRow, ...]:
    """Every row that states an outcome and all that decides its memory."""
    return tuple(JudgedRow(c.row, c.drawn.oom_probability, c.drawn.headroom) for c in comparisons if c.drawn)


def trade_off(rows: Iterable[JudgedRow], risks: Sequence[float] = RISKS) -> tuple[CurvePoint, ...]:
    """Missed failures and false alarms at each risk."""
    every = tuple(rows)
    failed = [row for row in every if row.out_of_memory]
    roomy = [row for row in every if not row.out_of_memory and row.headroom is not None and row.headroom > HEADROOM]
    points = []
    for risk in risks:
        missed = sum(row.oom_probability <= risk for row in failed)
        alarms = sum(row.oom_probability > risk for row in roomy)
        points.append(CurvePoint(risk, len(failed), missed, upper_share(missed, len(failed)), len(roomy), alarms))
    return tuple(points)


def upper_share(events: int, trials: int) -> float:
    """Clopper and Pearson's upper limit of a binomial share at 95 % confidence, by bisection (doi:10.2307/2331986)."""
    if trials == 0 or events >= trials:
        return 1.0
    low, high = events / trials, 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        tail = sum(comb(trials, k) * middle**k * (1 - middle) ** (trials - k) for k in range(events + 1))
        low, high = (middle, high) if tail > 1 - _CONFIDENCE else (low, middle)
    return high


_BISECTIONS: Final = 60


def curve_table(points: Sequence[CurvePoint]) -> str:
    """The curve as a Markdown table."""
    lines = [
        "| risk | OOM rows | called fitting | share missed, 95 % upper limit | roomy runs | not called fitting |",
        "|---|---|---|---|---|---|",
    ]
    for p in points:
        share = f"{p.false_alarms} ({100 * p.false_alarms / p.roomy_rows:.1f} %)" if p.roomy_rows else "-"
        lines.append(
            f"| {p.risk:g} | {p.oom_rows} | {p.missed} | {100 * p.missed_at_most:.1f} % | {p.roomy_rows} | {share} |"
        )
    return "\n".join(lines) + "\n"


def missed_rows(rows: Iterable[JudgedRow], risk: float = OOM_RISK) -> tuple[JudgedRow, ...]:
    """The failures that are called fitting at a risk."""
    return tuple(row for row in rows if row.out_of_memory and row.oom_probability <= risk)


def verdict_section(rows: Sequence[JudgedRow]) -> str:
    """Fits or not, as a section of a report in Markdown: the curve, how weak its proof is, and what it misses."""
    points = trade_off(rows)
    asked = next(point for point in points if point.risk == OOM_RISK)
    lines = [
        f"{len(rows)} measured rows state an outcome and all that decides their memory; {asked.oom_rows} of them ran "
        f"out of memory. A row is called fitting at a risk when its probability of running out is at most that risk. A "
        f"run is roomy when its measured peak left more than {100 * HEADROOM:.0f} % of the device free.",
        "",
        curve_table(points),
        f"The proof is weak: with {asked.missed} missed of {asked.oom_rows} failures, a share of missed failures of up "
        f"to {100 * asked.missed_at_most:.0f} % is compatible with these rows at 95 % confidence.",
        "",
    ]
    for row in missed_rows(rows):
        lines.append(
            f"- called fitting at {OOM_RISK:g} although it ran out of memory: {row.row.model} on {row.row.gpu}, "
            f"{row.row.source} line {row.row.line}, probability {row.oom_probability:.2g}"
        )
    return "\n".join(lines).rstrip() + "\n"
