"""A site's own measurements: re-estimate what its rows identify, on its devices only."""

from collections.abc import Sequence
from math import exp
from statistics import median
from typing import Final

import numpy as np

from cost_models.calibration import Calibration, Factor
from planner.fitting.batches import Batches
from planner.fitting.evidence import Sample, samples, weights
from planner.fitting.fit import FEWEST_ROWS, Fitted, estimated
from planner.fitting.robust import NOISE, resolve_linear
from planner.measurement import Measurement

WIDENING: Final = "step_time_widening"
IDENTIFIED: Final = 0.9
"""A factor is identified when its rows shrink its standard deviation to this share of the prior's, or below."""


def update(calibration: Calibration, measurements: Sequence[Measurement]) -> Calibration:
    """A maximum-a-posteriori update with `calibration` as the prior, device family by device family.

    Moved factors are stated for the family alone (`name@family`), so that rows of one device never move another's
    predictions. Below five rows of a family, or where moving would not have predicted rows left out of the update
    better, nothing moves; its intervals widen by the typical miss of those rows.
    """
    found = samples(measurements)
    changes: dict[str, Factor] = {}
    for family in sorted({sample.case.job.device.family for sample in found}):
        own = [sample for sample in found if sample.case.job.device.family == family]
        here = calibration.on(family)
        moved = _moved(here, own, family) if len(own) >= FEWEST_ROWS else {}
        changes |= (moved or _widened(here, own, family)) | _counted(calibration, own)
    return Calibration(
        version=f"{calibration.version}+site{len(found)}",
        factors={**calibration.factors, **changes},
        data=calibration.data,
    )


def site_fit(here: Calibration, own: Sequence[Sample]) -> Fitted:
    """The fit of one family's rows around the calibration as it stands."""
    values = {key: factor.value for key, factor in here.factors.items()}
    batches = Batches(own, values)
    readers = batches.readers()
    names = (key for key, factor in here.factors.items() if factor.prior is not None and factor.sigma)
    enough = tuple(sorted(name for name in names if len(readers.get(name, ())) >= FEWEST_ROWS))
    return estimated(batches, here, values, enough, np.array(weights(own)))


def _moved(here: Calibration, own: Sequence[Sample], family: str) -> dict[str, Factor]:
    """The factors that move; none where rows left out would not have been predicted better."""
    result = site_fit(here, own)
    if not predicts_better(result):
        return {}
    changes: dict[str, Factor] = {}
    for name, spread in result.spread.items():
        factor, value = here.factors[name], result.calibration.factors[name].value
        if value != factor.value and spread <= IDENTIFIED * float(factor.sigma or 0.0):
            source = f"re-estimated from {len(own)} runs on {family}; before: {factor.source}"
            changes[f"{name}@{family}"] = factor.model_copy(update={"value": value, "source": source})
    if changes and here.known(WIDENING) and here(WIDENING) > 1.0:
        changes[f"{WIDENING}@{family}"] = Factor(value=1.0, source=f"{len(own)} runs on {family} moved its constants")
    return changes


def predicts_better(result: Fitted) -> bool:
    """Whether updates without a row predict that row better, on average, than the prior does.

    The updates are linear around the one of all rows; large misses count in proportion (`robust.NOISE`).
    """
    problem, slopes = result.problem, result.slopes
    prior = result.residuals + slopes @ (problem.centre - result.estimate)
    rows = np.arange(len(prior))
    left_out = np.empty(len(prior))
    for row in rows:
        theta = resolve_linear(result.residuals, slopes, problem, result.estimate, rows != row)
        left_out[row] = result.residuals[row] + slopes[row] @ (theta - result.estimate)
    miss = [np.sqrt(1 + (errors / NOISE) ** 2) for errors in (left_out, prior)]
    return bool(np.mean(miss[0]) < np.mean(miss[1]))


def _widened(here: Calibration, own: Sequence[Sample], family: str) -> dict[str, Factor]:
    values = {key: factor.value for key, factor in here.factors.items()}
    misses = Batches(own, None).residuals(values)
    typical = exp(float(median(abs(float(r)) for r in misses)))
    wider = max(typical, here(WIDENING) if here.known(WIDENING) else 1.0)
    why = "too few" if len(own) < FEWEST_ROWS else "too unlike each other"
    source = f"typical miss of {len(own)} runs on {family}: {why} to move a constant"
    return {f"{WIDENING}@{family}": Factor(value=float(f"{wider:.3g}"), source=source)}


def _counted(calibration: Calibration, own: Sequence[Sample]) -> dict[str, Factor]:
    """The runs that now stand behind each stack."""
    found: dict[str, Factor] = {}
    for backend, family in sorted({sample.stack for sample in own}):
        key = f"measured_runs.{backend}.{family}"
        before = calibration.factors[key].value if key in calibration.factors else 0.0
        more = sum(sample.stack == (backend, family) for sample in own)
        found[key] = Factor(value=before + more, unit="runs", source="counted, with the site's own runs")
    return found
