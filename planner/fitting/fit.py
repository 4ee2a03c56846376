"""Refit: the constants that published rows identify, from their priors."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cost_models.arrays import FloatArray
from cost_models.calibration import Calibration
from planner.fitting.batches import Batches
from planner.fitting.evidence import Sample, fitted_on, samples, weights
from planner.fitting.robust import Problem, posterior_sigma, solve
from planner.measurement import Measurement

FEWEST_ROWS: Final = 5
"""Rows that must read a factor before a fit moves it."""
MARK: Final = "fit-"
"""Begins the part of a version that says which rows and step times were fitted on."""
DIGITS: Final = 3
"""Significant digits that the data carry."""


@dataclass(frozen=True)
class Fitted:
    """A fit with what stands behind it."""

    calibration: Calibration
    batches: Batches
    problem: Problem
    names: tuple[str, ...]
    estimate: FloatArray
    residuals: FloatArray
    slopes: FloatArray

    @property
    def spread(self) -> dict[str, float]:
        """Standard deviation of each fitted factor's logarithm."""
        sigma = posterior_sigma(self.residuals, self.slopes, self.problem)
        return dict(zip(self.names, (float(s) for s in sigma), strict=True))


def fit(rows: Sequence[Measurement], prior: Calibration) -> Calibration:
    """`prior` with every factor that has a `prior` and enough rows re-estimated; the held-out rows are not used.

    Rounded to the digits that the data carry, so that equal inputs give equal bits on any machine.
    """
    return fitted(samples(rows), prior).calibration


def fitted(found: Sequence[Sample], prior: Calibration) -> Fitted:
    """The fit on those rows that a fit may use."""
    used = fitted_on(found)
    centres = {key: f.value if f.prior is None else f.prior for key, f in prior.factors.items()}
    batches = Batches(used, centres)
    return estimated(batches, prior, centres, movable(batches, prior), np.array(weights(used)))


def movable(batches: Batches, prior: Calibration) -> tuple[str, ...]:
    """Factors with a prior that enough rows read."""
    readers = batches.readers()
    names = (key for key, factor in prior.factors.items() if factor.prior is not None and factor.sigma)
    return tuple(sorted(name for name in names if len(readers.get(name, ())) >= FEWEST_ROWS))


def estimated(
    batches: Batches, prior: Calibration, centres: dict[str, float], names: tuple[str, ...], weight: FloatArray
) -> Fitted:
    """Solve for the named factors around their centres."""
    sigma = np.array([float(prior.factors[name].sigma or 1.0) for name in names])
    centre = np.log([centres[name] for name in names]) if names else np.zeros(0)

    def linearised(theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        return batches.linearised(centres | dict(zip(names, np.exp(theta).tolist(), strict=True)), names)

    problem = Problem(linearised, weight, centre, sigma)
    start = centre
    theta = solve(problem, start) if names else start
    values = {name: rounded(float(value)) for name, value in zip(names, np.exp(theta), strict=True)}
    kept = {key: rounded(centres[key]) for key, f in prior.factors.items() if f.prior is not None and key not in values}
    calibration = prior.scaled(kept | values, version_of(prior, batches))
    theta = np.log([values[name] for name in names]) if names else theta
    residuals, slopes = linearised(theta)
    return Fitted(calibration, batches, problem, names, theta, residuals, slopes)


def rounded(value: float) -> float:
    """To the digits that the data carry."""
    return float(f"{value:.{DIGITS}g}")


def version_of(prior: Calibration, batches: Batches) -> str:
    """The version of the constants with a mark of the rows."""
    text = "\n".join(sorted(f"{s.row.source}|{s.row.ref}|{s.seconds!r}" for s in batches.samples))
    parts = [part for part in prior.version.split("+") if not part.startswith(MARK)]
    return "+".join((*parts, MARK + hashlib.sha256(text.encode()).hexdigest()[:8]))
