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
from planner.fitting.fit import FEWEST_ROWS, Fitted, estimated, movable, rounded
from planner.fitting.robust import NOISE, posterior_sigma, resolve_linear
from planner.fitting.site_intervals import site_intervals
from planner.fitting.trust import UPPER, agreeing, distinct, most_spread, spread
from planner.measurement import Measurement

WIDENING: Final = "step_time_widening"
IDENTIFIED: Final = 0.9
"""A factor is identified when its rows shrink its standard deviation to this share of the prior's, or below."""
MOST_WIDTHS: Final = 3.0
"""A factor moves by this many widths of its prior at most; where that explains the rows no better than others agree
with theirs, they tell of something else and nothing moves."""


@dataclass(frozen=True)
class Told:
    """What the rows of one device family did."""

    family: str
    rows: int
    moved: Mapping[str, Factor]
    why: str
    """Why nothing moved; "" where something did."""
    out_of_range: tuple[str, ...] = ()
    """Factors that the rows would move further than their prior allows, and that go no further."""


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
    found = site_fit(here, usable)
    result, beyond, most = found.result, tuple(sorted(found.held)), most_spread(here, family)
    if spread(result.residuals - np.median(result.residuals)) > most:
        return Told(family, len(own), {}, _UNLIKE, beyond)
    if spread(result.residuals) > most:
        return Told(family, len(own), {}, _TOO_FAR if beyond else _UNLIKE, beyond)
    without = left_out(result)
    if not better(without, found.before):
        return Told(family, len(own), {}, "no better predicted by moved constants than by the shipped ones", beyond)
    moved = _moved(here, found, len(usable), family)
    if moved:
        moved |= site_intervals("step_time", without, family)
    return Told(family, len(own), moved, "" if moved else "they pin no constant closer than its prior", beyond)


_TOO_FAR: Final = "further from the predictions than constants may move"
_UNLIKE: Final = "too unlike each other, or the predictions, to move a constant"


@dataclass(frozen=True)
class SiteFit:
    """A fit of one family's rows."""

    result: Fitted
    held: Mapping[str, float]
    """Factors that the rows would move further than their prior allows, at the end of what it allows."""
    before: FloatArray
    """Log of predicted over measured, by the calibration as it stands."""


def site_fit(here: Calibration, own: Sequence[Sample]) -> SiteFit:
    """The fit around the calibration as it stands, of those factors alone that the rows identify.

    What is fitted is what moves: errors of a fit of more factors would not be those of the update. A factor at the end
    of its range is held there and the others are fitted again, so that more rows of a kind never undo what fewer moved.
    """
    values = {key: factor.value for key, factor in here.factors.items()}
    batches = Batches(own, values)
    weight, before = np.array(weights(own)), batches.residuals(values)
    names, held = movable(batches, here), dict[str, float]()
    while True:
        result = estimated(batches, here, values, names, weight)
        kept = identified(result)
        if kept == names:
            ends = _beyond(result)
            if not ends:
                return SiteFit(result, held, before)
            held, values = held | ends, values | ends
            kept = tuple(name for name in names if name not in ends)
        names = kept


def _beyond(result: Fitted) -> dict[str, float]:
    """Factors that a fit moves by more than `MOST_WIDTHS`, at the value of so many."""
    problem = result.problem
    widths = (result.estimate - problem.centre) / problem.sigma
    ends = np.exp(problem.centre + np.sign(widths) * MOST_WIDTHS * problem.sigma)
    return {
        name: rounded(float(end))
        for name, width, end in zip(result.names, widths, ends, strict=True)
        if abs(width) > MOST_WIDTHS
    }


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


def _moved(here: Calibration, found: SiteFit, runs: int, family: str) -> dict[str, Factor]:
    """The factors that the rows identify."""
    result, changes = found.result, dict[str, Factor]()
    values = {name: result.calibration.factors[name].value for name in result.names}
    for name, value in {**values, **found.held}.items():
        factor = here.factors[name]
        if value != factor.value:
            most = ", as far as its prior allows" if name in found.held else ""
            source = f"re-estimated from {runs} runs on {family}, {most}before: {factor.source}"
            changes[f"{name}@{family}"] = factor.model_copy(update={"value": value, "source": source})
    if changes and here.known(WIDENING) and here(WIDENING) > 1.0:
        changes[f"{WIDENING}@{family}"] = Factor(value=1.0, source=f"{runs} runs on {family} moved its constants")
    return changes


def left_out(result: Fitted) -> FloatArray:
    """Log of predicted over measured, each row by an update without it: linear around the update of all rows."""
    problem, slopes = result.problem, result.slopes
    rows = np.arange(len(result.residuals))
    without = np.empty(len(rows))
    for row in rows:
        theta = resolve_linear(result.residuals, slopes, problem, result.estimate, rows != row)
        without[row] = result.residuals[row] + slopes[row] @ (theta - result.estimate)
    return without


def better(without: FloatArray, before: FloatArray) -> bool:
    """Whether updates without a row predict that row better, on average, than the calibration before them.

    Large misses count in proportion (`robust.NOISE`).
    """
    after, prior = (np.sqrt(1 + (errors / NOISE) ** 2) for errors in (without, before))
    return bool(np.mean(after) < np.mean(prior))


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
