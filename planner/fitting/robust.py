"""Robust maximum-a-posteriori estimates of log factors."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cost_models.arrays import FloatArray

NOISE: Final = 0.1
"""Log error of a typical row; larger ones count in proportion, not by their square."""
MOST_EVALUATIONS: Final = 40
TOLERANCE: Final = 1e-5
_REWEIGHTINGS: Final = 50


@dataclass(frozen=True)
class Problem:
    r"""Rows with weights w, log factors with Gaussian priors.

    .. math:: \min_\theta \sum_i w_i\, \rho\!\left(\frac{r_i(\theta)^2}{s^2}\right)
              + \sum_k \frac{(\theta_k - \mu_k)^2}{\sigma_k^2}, \quad \rho(z) = 2(\sqrt{1 + z} - 1)

    Source: soft-L1 loss, scipy.optimize.least_squares; s is `NOISE`.
    """

    linearised: Callable[[FloatArray], tuple[FloatArray, FloatArray]]
    """Residuals and their derivatives at given log factors."""
    weights: FloatArray
    centre: FloatArray
    sigma: FloatArray


def solve(problem: Problem, start: FloatArray, *, most: int = MOST_EVALUATIONS) -> FloatArray:
    """The estimate, by trust-region least squares with at most `most` evaluations."""
    from scipy.optimize import least_squares

    rows = len(problem.weights)
    known: dict[bytes, tuple[FloatArray, FloatArray]] = {}

    def at(theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        key = theta.tobytes()
        if key not in known:
            known.clear()
            residuals, slopes = problem.linearised(theta)
            values = np.concatenate([residuals / NOISE, (theta - problem.centre) / problem.sigma])
            known[key] = values, np.vstack([slopes / NOISE, np.diag(1 / problem.sigma)])
        return known[key]

    def loss(z: FloatArray) -> FloatArray:
        """Rho and its two derivatives: soft-L1 for rows, plain squares for priors."""
        root = np.sqrt(1 + z[:rows])
        soft = np.array([2 * (root - 1), 1 / root, -0.5 / root**3]) * problem.weights
        return np.hstack([soft, np.array([z[rows:], np.ones(len(z) - rows), np.zeros(len(z) - rows)])])

    result: Any = least_squares(
        lambda theta: at(theta)[0], start, jac=lambda theta: at(theta)[1], loss=loss, x_scale=problem.sigma,
        max_nfev=most, ftol=TOLERANCE, xtol=TOLERANCE, gtol=TOLERANCE,
    )  # fmt: skip
    estimate: FloatArray = result.x
    return estimate


def resolve_linear(
    residuals: FloatArray, slopes: FloatArray, problem: Problem, at: FloatArray, keep: Any
) -> FloatArray:
    """The estimate from the rows `keep` alone, residuals taken as linear around `at`: many refits are cheap."""
    r, slopes, w = residuals[keep], slopes[keep], problem.weights[keep]
    precision = np.diag(1 / problem.sigma**2)
    theta = at
    for _ in range(_REWEIGHTINGS):
        now = r + slopes @ (theta - at)
        robust = w / np.sqrt(1 + (now / NOISE) ** 2) / NOISE**2
        hessian = (slopes * robust[:, None]).T @ slopes + precision
        gradient = slopes.T @ (robust * now) + (theta - problem.centre) / problem.sigma**2
        step = np.linalg.solve(hessian, gradient)
        theta = theta - step
        if float(np.max(np.abs(step), initial=0.0)) < TOLERANCE:
            break
    return theta


def posterior_sigma(residuals: FloatArray, slopes: FloatArray, problem: Problem) -> FloatArray:
    """Standard deviations of the estimate's log factors, from the curvature at it."""
    robust = problem.weights / np.sqrt(1 + (residuals / NOISE) ** 2) / NOISE**2
    hessian = (slopes * robust[:, None]).T @ slopes + np.diag(1 / problem.sigma**2)
    spread: FloatArray = np.sqrt(np.diag(np.linalg.inv(hessian)))
    return spread
