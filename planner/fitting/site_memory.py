"""How far a site's allocated peaks are from the ledger's: the distribution that its next plans are held against."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import NormalDist
from typing import Final

import numpy as np

from cost_models.arrays import FloatArray
from cost_models.calibration import Calibration, Factor
from planner.fitting.sifting import OF_MEDIAN
from planner.fitting.site_intervals import FEWEST

_Z99: Final = NormalDist().inv_cdf(0.99)
FEWEST_PLANS: Final = 5
"""Plans that must all have held less than predicted before others are expected to."""


@dataclass(frozen=True, slots=True)
class Peak:
    """What a run held, of a regime of the ledger's error and a device family."""

    regime: str
    family: str
    plan: str
    """Equal of runs of one plan."""
    error: float
    """Log of measured over the sum of the ledger's terms."""


def site_memory(calibration: Calibration, peaks: Sequence[Peak]) -> dict[str, Factor]:
    """Factors `allocated_median`, `allocated_q99` and `allocated_q01` of `REGIME@FAMILY`, for `memory.allocator`, where
    ten runs or more say that the calibration's own do not hold.
    """
    groups: dict[tuple[str, str], list[Peak]] = {}
    for peak in peaks:
        groups.setdefault((peak.regime, peak.family), []).append(peak)
    found: dict[str, Factor] = {}
    for (regime, family), own in sorted(groups.items()):
        width = log(calibration.on(family)("allocated_q99", regime))
        if len(own) < FEWEST or all(abs(peak.error) <= width for peak in own):
            continue
        middle = centre(own)
        off = np.array([peak.error for peak in own]) - middle
        ends = {"q99": middle + reach(off, width), "median": middle, "q01": middle - reach(-off, width)}
        source = f"{len(own)} runs on {family}: measured over predicted allocated bytes"
        for name, end in ends.items():
            found[f"allocated_{name}.{regime}@{family}"] = Factor(value=float(f"{exp(end):.4g}"), source=source)
    return found


def centre(peaks: Sequence[Peak]) -> float:
    """Where the next plan's error is expected: the median of all runs where it is above the ledger; below it no lower
    than every one of five plans or more, because a plan that is foretold too little runs out of memory.
    """
    plans: dict[str, list[float]] = {}
    for peak in peaks:
        plans.setdefault(peak.plan, []).append(peak.error)
    middle = float(np.median([peak.error for peak in peaks]))
    if middle > 0.0:
        return middle
    return min(0.0, max(float(np.median(own)) for own in plans.values())) if len(plans) >= FEWEST_PLANS else 0.0


def reach(off: FloatArray, width: float) -> float:
    r"""How far above the centre the 99th percentile lies: as far as any run, no closer than the calibration says, and
    so far that it is one of a normal distribution with the runs' robust spread. One odd run widens it to itself alone.

    .. math:: w = \max(w_0,\ \max_i e_i,\ z_{0.99} \cdot 1.4826\, \text{median}_i |e_i - \tilde e|)
    """
    spread = OF_MEDIAN * float(np.median(np.abs(off - np.median(off))))
    return max(width, float(off.max()), _Z99 * spread)
