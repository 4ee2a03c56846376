"""How far a site's allocated peaks are from the ledger's: the distribution that its next plans are held against."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from typing import Final

import numpy as np

from cost_models.calibration import Calibration, Factor
from cost_models.memory import exponent
from planner.fitting.residuals import quantile
from planner.fitting.site_intervals import FEWEST
from planner.uncertainty import LEVELS, tail

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


def reach(off: np.ndarray[tuple[int], np.dtype[np.float64]], width: float) -> float:
    r"""How far above the centre the 99th percentile lies: as far as any run, and as in the calibration, and so far that
    the quantiles of a log-normal hold as many of the runs as those of split conformal prediction.

    .. math:: w = \max\left(w_0,\ \max_i e_i,\ \max_p \frac{\text{quantile}_{\min(1,\, p (1 + 1/n))}(e^+)}{z_p}\right)

    with the levels' exponents z. Source: Lei et al., arXiv:1604.04173 section 2.2.
    """
    above, each = np.maximum(off, 0.0), np.ones(len(off))
    held = [
        quantile(above, each, min(1.0, float(level) / 100 * (1 + 1 / len(off)))) / exponent(tail(level))
        for level in LEVELS
    ]
    return max(width, float(above.max()), *held)
