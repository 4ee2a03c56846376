"""A site's own measurements: re-estimate what its rows identify, on its devices only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp
from typing import Final

import numpy as np

from cost_models.arrays import FloatArray
from cost_models.calibration import Calibration, Factor
from planner.fitting.batches import Batches
from planner.fitting.evidence import Sample, samples, weights
from planner.fitting.fit import FEWEST_ROWS, Fitted, estimated, movable
from planner.fitting.robust import NOISE, posterior_sigma, resolve_linear
from planner.fitting.site_intervals import site_intervals
from planner.fitting.trust import UPPER, agreeing, distinct, most_spread, spread
from planner.measurement import Measurement

WIDENING: Final = "step_time_widening"
IDENTIFIED: Final = 0.9
"""A factor is identified when its rows shrink its standard deviation to this share of the prior's, or below."""
MOST_WIDTHS: Final = 3.0
"""A factor that rows would move by more than this many widths of its prior stays: they tell of something else."""


@dataclass(frozen=True)
class Told:
    """What the rows of one device family did."""

    family: str
    rows: int
    moved: Mapping[str, Factor]
    why: str
    """Why nothing moved; "" where something did."""
    out_of_range: tuple[str, ...] = ()
    """Factors that the rows would move further than their prior allows, and that stay."""


@dataclass(frozen=True)
class SiteUpdate:
    """The updated calibration, and what every family's rows did."""

    calibration: Calibration
    told: tuple[Told, ...]


def update(calibration: Calibration, measurements: Sequence[Measurement]) -> Calibration:
    """A maximum-a-posteriori update with `calibration` as the prior, device family by device family.

    Moved factors are stated for the family alone (`name@family`), so that rows of one device never move another's
    predictions. Below five rows of a family, where they contradict each other, or where moving would not have predicted
    rows left out of the update better, nothing moves; its intervals widen by the typical miss of those rows.
    """
    return updated(calibration, samples(measurements)).calibration


def updated(calibration: Calibration, found: Sequence[Sample]) -> SiteUpdate:
    """The update from rows that can be priced, with what each family's did."""
    changes: dict[str, Factor] = {}
    told: list[Told] = []
    for family in sorted({sample.case.job.device.family for sample in found}):
        own = [sample for sample in found if sample.case.job.device.family == family]
        here = calibration.on(family)
        usable = distinct(agreeing(own, most_spread(here, family)))
        said = _told(here, own, usable, family)
        told.append(said)
        changes |= said.moved or _widened(here, own, family, said.why)
        changes |= {} if said.why == _UNLIKE else _counted(calibration, usable)
    version = f"{calibration.version}+site{len(found)}"
    return SiteUpdate(
        Calibration(version=version, factors={**calibration.factors, **changes}, data=calibration.data), tuple(told)
    )


def _told(here: Calibration, own: Sequence[Sample], usable: Sequence[Sample], family: str) -> Told:
    """The factors that move, or why none does."""
    if len(usable) < FEWEST_ROWS:
        once = distinct(own)
        few = f"too few to move a constant, {FEWEST_ROWS} distinct ones are needed"
        return Told(family, len(own), {}, few if len(once) < FEWEST_ROWS else _UNLIKE)
    result, beyond = site_fit(here, usable)
    if spread(result.residuals - np.median(result.residuals)) > most_spread(here, family):
        return Told(family, len(own), {}, _UNLIKE, beyond)
    if not result.names and beyond:
        return Told(family, len(own), {}, "further from the predictions than constants may move", beyond)
    if spread(result.residuals) > most_spread(here, family):
        return Told(family, len(own), {}, _UNLIKE, beyond)
    if not predicts_better(result):
        return Told(family, len(own), {}, "no better predicted by moved constants than by the shipped ones", beyond)
    moved = _moved(here, result, len(usable), family)
    if moved:
        moved |= site_intervals("step_time", left_out(result)[0], family)
    return Told(family, len(own), moved, "" if moved else "they pin no constant closer than its prior", beyond)


_UNLIKE: Final = "too unlike each other, or the predictions, to move a constant"


def site_fit(here: Calibration, own: Sequence[Sample]) -> tuple[Fitted, tuple[str, ...]]:
    """The fit of one family's rows around the calibration as it stands, of those factors alone that the rows identify,
    and the factors that it leaves where they are because it would move them by more than `MOST_WIDTHS` widths of their
    prior. What is fitted is what moves: errors of a fit of more factors would not be those of the update.
    """
    values = {key: factor.value for key, factor in here.factors.items()}
    batches = Batches(own, values)
    weight = np.array(weights(own))
    names, beyond = movable(batches, here), set[str]()
    while True:
        result = estimated(batches, here, values, names, weight)
        away = np.abs(result.estimate - result.problem.centre) / result.problem.sigma
        far = {name for name, widths in zip(names, away, strict=True) if widths > MOST_WIDTHS}
        beyond |= far
        kept = identified(result) if not far else tuple(name for name in names if name not in far)
        if kept == names:
            return result, tuple(sorted(beyond))
        names = kept


def identified(result: Fitted) -> tuple[str, ...]:
    """The factors left when the one that the rows narrow least is taken away, again and again, until they narrow each
    to `IDENTIFIED` of its prior: of factors that act alike one stays.
    """
    left = list(range(len(result.names)))
    while left:
        sigma = result.problem.sigma[left]
        part = replace(result.problem, centre=result.problem.centre[left], sigma=sigma)
        shares = posterior_sigma(result.residuals, result.slopes[:, left], part) / sigma
        least = int(np.argmax(shares))
        if shares[least] <= IDENTIFIED:
            break
        del left[least]
    return tuple(result.names[index] for index in left)


def _moved(here: Calibration, result: Fitted, runs: int, family: str) -> dict[str, Factor]:
    """The factors that the rows identify."""
    changes: dict[str, Factor] = {}
    for name, width in result.spread.items():
        factor, value = here.factors[name], result.calibration.factors[name].value
        if value != factor.value and width <= IDENTIFIED * float(factor.sigma or 0.0):
            source = f"re-estimated from {runs} runs on {family}; before: {factor.source}"
            changes[f"{name}@{family}"] = factor.model_copy(update={"value": value, "source": source})
    if changes and here.known(WIDENING) and here(WIDENING) > 1.0:
        changes[f"{WIDENING}@{family}"] = Factor(value=1.0, source=f"{runs} runs on {family} moved its constants")
    return changes


def left_out(result: Fitted) -> tuple[FloatArray, FloatArray]:
    """Log of predicted over measured by updates without the row itself, and by the prior.

    The updates are linear around the one of all rows.
    """
    problem, slopes = result.problem, result.slopes
    prior = result.residuals + slopes @ (problem.centre - result.estimate)
    rows = np.arange(len(prior))
    without = np.empty(len(prior))
    for row in rows:
        theta = resolve_linear(result.residuals, slopes, problem, result.estimate, rows != row)
        without[row] = result.residuals[row] + slopes[row] @ (theta - result.estimate)
    return without, prior


def predicts_better(result: Fitted) -> bool:
    """Whether updates without a row predict that row better, on average, than the prior does.

    Large misses count in proportion (`robust.NOISE`).
    """
    miss = [np.sqrt(1 + (errors / NOISE) ** 2) for errors in left_out(result)]
    return bool(np.mean(miss[0]) < np.mean(miss[1]))


def _widened(here: Calibration, own: Sequence[Sample], family: str, why: str) -> dict[str, Factor]:
    values = {key: factor.value for key, factor in here.factors.items()}
    misses = np.abs(Batches(own, None).residuals(values))
    typical = exp(float(np.quantile(misses, UPPER) if why == _UNLIKE else np.median(misses)))
    wider = max(typical, here(WIDENING) if here.known(WIDENING) else 1.0)
    source = f"typical miss of {len(own)} runs on {family}: {why}"
    return {f"{WIDENING}@{family}": Factor(value=float(f"{wider:.3g}"), source=source)}


def _counted(calibration: Calibration, own: Sequence[Sample]) -> dict[str, Factor]:
    """The runs that now stand behind each stack: those that agree with each other, each once."""
    found: dict[str, Factor] = {}
    for backend, family in sorted({sample.stack for sample in own}):
        key = f"measured_runs.{backend}.{family}"
        before = calibration.factors[key].value if key in calibration.factors else 0.0
        more = sum(sample.stack == (backend, family) for sample in own)
        found[key] = Factor(value=before + more, unit="runs", source="counted, with the site's own runs")
    return found
