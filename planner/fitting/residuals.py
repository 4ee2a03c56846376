"""How far predictions were off on rows that their fit had not seen, by what was known about the stack."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import exp
from typing import Any, Final

import numpy as np

from cost_models.arrays import FloatArray
from cost_models.calibration import Factor
from planner.fitting.batches import Batches
from planner.fitting.evidence import Sample, draw, excluded, held_out
from planner.fitting.fit import Fitted
from planner.fitting.robust import resolve_linear
from planner.uncertainty import LEVELS, stack_key

FOLDS: Final = 5
ENOUGH_FOR_OWN: Final = 20
"""Rows from which a stack has quantiles of its own."""
ENOUGH_FOR_SIDES: Final = 50
"""Rows from which too fast and too slow are told apart."""
LEAST: Final[Mapping[str, Mapping[str, float]]] = {
    "new_device": {"80": 1.4, "90": 1.6}, "unseen": {"80": 2.0, "90": 2.5},
}  # fmt: skip
"""No narrower than this factor either way. Leaving shipped sources out flatters what is new: the centres of priors have
seen them, and hosts, releases and settings that a new table does not print add to its errors. Pairs that no source has
were covered in one case of three by the quantiles alone.
"""
NARROWEST: Final = 1.01
"""The same of every interval: where all runs were slower than predicted, it still holds the prediction."""


@dataclass(frozen=True)
class Missed:
    """Log of measured over predicted of a row, by a fit without its kind."""

    sample: Sample
    error: float


def cross_validated(result: Fitted, judged: Sequence[Sample], left_out: Callable[[Sample], Any]) -> list[Missed]:
    """Errors of `judged`, each predicted by a fit without the rows that share its `left_out`.

    The refits are linear around the whole fit; their predictions are exact.
    """
    used = result.batches.samples
    base = {key: factor.value for key, factor in result.calibration.factors.items()}
    found: list[Missed] = []
    for out in sorted({left_out(sample) for sample in judged}, key=str):
        own = [sample for sample in judged if left_out(sample) == out]
        keep = np.array([left_out(sample) != out for sample in used])
        theta = resolve_linear(result.residuals, result.slopes, result.problem, result.estimate, keep)
        values = base | dict(zip(result.names, np.exp(theta).tolist(), strict=True))
        errors = Batches(own, None).residuals(values)
        found += [Missed(sample, -float(error)) for sample, error in zip(own, errors, strict=True)]
    return found


def judged_rows(found: Sequence[Sample]) -> list[Sample]:
    """Rows whose errors say how sure a prediction is: none held out, the composed table thinned; of the rows that no
    fit uses only the small models, whose intervals are their own.
    """
    return [
        sample
        for sample in found
        if not held_out(sample.row)
        and (not excluded(sample) or sample.small)
        and (sample.group != "vtrain single-node" or draw(sample.row, "judged") < 1 / FOLDS)
    ]


def quantile_factors(result: Fitted, judged: Sequence[Sample]) -> dict[str, Factor]:
    """Factors `step_time_low` and `step_time_high` by class or stack and level, for `planner.uncertainty`.

    Of a known stack the rows are left out of the fit in folds drawn by row: a further run of the stack is such a row.
    """
    rows = cross_validated(result, judged, row_fold)
    large = [sample for sample in judged if not excluded(sample)]
    pairs = cross_validated(result, large, lambda sample: sample.stack)
    frameworks = cross_validated(result, large, lambda sample: sample.stack[0])
    fitted_kinds = [missed for missed in rows if not excluded(missed.sample)]
    classes = {
        "known_stack": ([m for m in fitted_kinds if not m.sample.moe], "the rows were left out of the fit"),
        "known_stack_moe": ([m for m in fitted_kinds if m.sample.moe], "mixture-of-experts rows were left out"),
        "new_device": (pairs, "all runs of the framework on the device family were left out"),
        "unseen": (frameworks, "all runs of the framework were left out"),
    }
    by_stack: dict[str, list[Missed]] = defaultdict(list)
    for missed in rows:
        by_stack[stack_key(missed.sample.case.job, missed.sample.configuration)].append(missed)
    for key, own in sorted(by_stack.items()):
        if len(own) >= ENOUGH_FOR_OWN:
            classes[key] = own, "the rows were left out of the fit, this stack alone"
    factors: dict[str, Factor] = {}
    for name, (misses, text) in classes.items():
        factors |= _interval_factors(name, misses, text)
    return factors


def row_fold(sample: Sample) -> int:
    """Which fifth of all rows a row belongs to."""
    return int(FOLDS * draw(sample.row, "row"))


def model_fold(sample: Sample) -> int:
    """Which fifth of all models a row belongs to."""
    return int(FOLDS * draw(sample.row.model_copy(update={"source": "", "ref": sample.shape}), "model"))


def _interval_factors(name: str, misses: Sequence[Missed], text: str) -> dict[str, Factor]:
    errors = np.array([missed.error for missed in misses])
    weight = balanced(misses)
    found: dict[str, Factor] = {}
    for level in LEVELS:
        share = float(level) / 100
        if len(misses) >= ENOUGH_FOR_SIDES:
            low, high = (quantile(errors, weight, side) for side in ((1 - share) / 2, (1 + share) / 2))
        else:
            high = quantile(np.abs(errors), weight, min(1.0, share * (1 + 1 / max(len(misses), 1))))
            low = -high
        least = np.log(LEAST.get(name, {}).get(level, NARROWEST))
        source = f"quantiles of {len(misses)} log errors where {text}, every source alike"
        for side, value in (("low", min(low, -least)), ("high", max(high, least))):
            found[f"step_time_{side}.{name}.{level}"] = Factor(value=float(f"{exp(value):.3g}"), source=source)
    return found


def balanced(misses: Sequence[Missed]) -> FloatArray:
    """Weights that give every group of rows the square root of its number."""
    counts = Counter(missed.sample.group for missed in misses)
    return np.array([counts[missed.sample.group] ** -0.5 for missed in misses])


def quantile(values: FloatArray, weight: FloatArray, share: float) -> float:
    """Weighted quantile, interpolated between neighbours."""
    order = np.argsort(values, kind="stable")
    centres = np.cumsum(weight[order]) - weight[order] / 2
    return float(np.interp(share * float(np.sum(weight)), centres, values[order]))
