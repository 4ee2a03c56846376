"""Whole sources left out: what a prediction is worth for a table that the fit has not seen."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import mean, median
from typing import Final

import numpy as np

from planner.fitting.evidence import Sample, excluded
from planner.fitting.fit import Fitted
from planner.fitting.residuals import Missed, cross_validated

LOOSER: Final = 3.0
"""How much wider priors are made for a second look: their centres have seen the shipped rows and carry much."""
_COMPOSED: Final = "vtrain single-node"
_HEADLINE_FAMILIES: Final = frozenset({"a100", "h100"})


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Errors on a source, or a part of it, by a fit without the source. [fractions]"""

    group: str
    rows: int
    median_ape: float
    mape: float
    bias: float
    loose_median_ape: float
    """The same with priors `LOOSER` times as wide."""


def sources_left_out(result: Fitted, found: Sequence[Sample]) -> tuple[LeftOut, ...]:
    """Every source, by the fit of all others; last, all full-parameter rows on A100 and H100 together.

    The composed table is left out with its source and not counted in the last line.
    """
    judged = [sample for sample in found if not excluded(sample)]
    loose = replace(result, problem=replace(result.problem, sigma=result.problem.sigma * LOOSER))
    tight_errors, loose_errors = (cross_validated(fit, judged, _source) for fit in (result, loose))
    groups: dict[str, list[tuple[Missed, Missed]]] = defaultdict(list)
    for pair in zip(tight_errors, loose_errors, strict=True):
        groups[pair[0].sample.group].append(pair)
    every = [pair for group in groups.values() for pair in group if _headline(pair[0].sample)]
    named = [*sorted(groups.items()), ("full-parameter training on A100 and H100", every)]
    return tuple(_left_out(name, pairs) for name, pairs in named if pairs)


def _source(sample: Sample) -> str:
    return sample.row.source


def _headline(sample: Sample) -> bool:
    full = sample.case.job.training.method == "full"
    return full and sample.stack[1] in _HEADLINE_FAMILIES and sample.group != _COMPOSED


def _left_out(group: str, pairs: Sequence[tuple[Missed, Missed]]) -> LeftOut:
    tight, loose = ([float(np.expm1(-missed.error)) for missed in side] for side in zip(*pairs, strict=True))
    return LeftOut(
        group=group,
        rows=len(pairs),
        median_ape=median(map(abs, tight)),
        mape=mean(map(abs, tight)),
        bias=median(tight),
        loose_median_ape=median(map(abs, loose)),
    )
