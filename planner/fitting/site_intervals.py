"""How far a site's own predictions are off, on its own runs that an update did not see."""

from math import exp
from typing import Final

import numpy as np

from cost_models.arrays import FloatArray
from cost_models.calibration import Factor
from planner.fitting.residuals import NARROWEST, quantile
from planner.uncertainty import LEVELS, SITE

FEWEST: Final = 10
"""Runs from which a site has intervals of its own: of fewer no error but the largest stands for nine in ten."""


def site_intervals(name: str, errors: FloatArray, family: str) -> dict[str, Factor]:
    r"""Factors `NAME_low.site.LEVEL@FAMILY` and `NAME_high...`, from logs of predicted over measured.

    .. math:: q = \text{quantile}_{\min(1,\, p (1 + 1/n))}(|e|)

    The level is raised as in split conformal prediction: a further run is one of n + 1 that are alike, and both sides
    are taken together. Source: Lei et al., arXiv:1604.04173 section 2.2.
    """
    count = len(errors)
    if count < FEWEST:
        return {}
    found: dict[str, Factor] = {}
    for level in LEVELS:
        share = min(1.0, float(level) / 100 * (1 + 1 / count))
        width = max(quantile(np.abs(errors), np.ones(count), share), float(np.log(NARROWEST)))
        source = f"quantile of {count} absolute log errors of runs on {family}, each left out of the update"
        for side, sign in (("low", -1), ("high", 1)):
            value = float(f"{exp(sign * width):.4g}")
            found[f"{name}_{side}.{SITE}.{level}@{family}"] = Factor(value=value, source=source)
    return found
