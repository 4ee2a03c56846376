"""Whole sources left out: what a prediction is worth for a table that the fit has not seen."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import mean, median
from typing import Final

import numpy as np

from cost_models.arrays import FloatArray
from planner.fitting.batches import Batches
from planner.fitting.evidence import Sample, excluded, held_out
from planner.fitting.fit import Fitted
from planner.fitting.residuals import Missed, cross_validated
from planner.fitting.robust import solve

LOOSER: Final = 3.0
"""How much wider priors are made for a second look: their centres have seen the shipped rows and carry much."""
_EVALUATIONS: Final = 8
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


def with_looser_priors(result: Fitted, found: Sequence[Sample]) -> tuple[tuple[float, float], tuple[float, float]]:
    """Median and mean error on the held-out rows, as fitted and with priors `LOOSER` times as wide. [fractions]

    Were the held-out rows easy because the centres of priors have seen them, wider priors would lose that.
    """
    rows = [s for s in found if held_out(s.row) and not excluded(s) and s.group != _COMPOSED]
    judged, base = Batches(rows, None), {key: factor.value for key, factor in result.calibration.factors.items()}
    loose = solve(_loosened(result).problem, result.estimate, most=_EVALUATIONS)

    def errors(theta: FloatArray) -> tuple[float, float]:
        values = base | dict(zip(result.names, np.exp(theta).tolist(), strict=True))
        off = np.abs(np.expm1(judged.residuals(values)))
        return float(np.median(off)), float(np.mean(off))

    return errors(result.estimate), errors(loose)


def _loosened(result: Fitted) -> Fitted:
    return replace(result, problem=replace(result.problem, sigma=result.problem.sigma * LOOSER))


def sources_left_out(result: Fitted, found: Sequence[Sample]) -> tuple[LeftOut, ...]:
    """Every source, by the fit of all others; last, all full-parameter rows on A100 and H100 together.

    The composed table is left out with its source and not counted in the last line.
    """
    judged = [sample for sample in found if not excluded(sample)]
    tight_errors, loose_errors = (cross_validated(fit, judged, _source) for fit in (result, _loosened(result)))
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
