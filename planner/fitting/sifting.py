"""Which figures of a site's runs are evidence: not those that no such run can have, nor those far from all others.

An update is robust by itself (`robust.NOISE`); what is far off is taken out before, so that intervals, which are
quantiles of errors, do not stretch to it either, and so that people are told.
"""

from collections.abc import Sequence
from math import exp, log
from typing import Final

import numpy as np

from cost_models.specs.cluster import DeviceSpec
from cost_models.units import gib
from planner.fitting.site_runs import QUANTITIES, Quantity, Seen, SetAside, by_stack

MOST_DEVIATIONS: Final = 3.5
"""Modified z-score beyond which a value is an outlier. Source: Iglewicz and Hoaglin, How to Detect and Handle Outliers
(ASQC 1993), section 3.2."""
OF_MEDIAN: Final = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""
FEWEST_ALIKE: Final = 3
"""Runs of one plan from which one of them can be the odd one out."""
FEWEST_OTHERS: Final = 5
"""The same of plans, or where there are fewer of runs, of one stack."""
SAME_PLAN: Final = {"step_seconds": 1.25, "peak_allocated_bytes": 1.1}
"""Runs of one plan that differ by no more than this factor are alike, however alike the others are."""
OTHER_PLANS: Final = {"step_seconds": 1.5, "peak_allocated_bytes": 1.3}
"""The same of different plans, whose predictions are off by different factors."""
WRONG_UNITS: Final = {
    "step_seconds": {"milliseconds": 1e3, "microseconds": 1e6},
    "peak_allocated_bytes": {"GiB": 2.0**-30, "GB": 1e-9, "MiB": 2.0**-20, "MB": 1e-6, "KiB": 2.0**-10},
}
"""What figures are when another unit was meant, over what they should be."""
UNIT_SLACK: Final = 2.0


def sifted(found: Sequence[Seen]) -> tuple[dict[Quantity, list[Seen]], list[SetAside]]:
    """The runs that tell something about each quantity, and the others that state it, each with why it does not."""
    kept: dict[Quantity, list[Seen]] = {}
    aside: list[SetAside] = []
    for quantity in QUANTITIES:
        kept[quantity] = []
        for own in by_stack([one for one in found if one.ratio(quantity) is not None]).values():
            possible = []
            for one in own:
                why = impossible(one, quantity)
                if why:
                    aside.append(SetAside(ref=one.run.ref, quantity=quantity, why=why))
                else:
                    possible.append(one)
            good, odd = _outliers(possible, quantity)
            kept[quantity] += good
            aside += odd
    return kept, aside


def impossible(one: Seen, quantity: Quantity) -> str:
    """Why no run of this plan can have this figure; "" where one can."""
    said, ratio = one.foretold, one.ratio(quantity) or 1.0
    device = said.job.device
    if quantity == "step_seconds" and (one.run.step_seconds or 0.0) < said.least_seconds:
        return "faster than the peak of its devices"
    for unit, factor in WRONG_UNITS[quantity].items():
        off = abs(log(ratio / factor))
        if off < log(UNIT_SLACK) and off < abs(log(ratio)):
            return f"{ratio:.2g} of what was predicted, as if it were in {unit}"
    return beyond(one.run.peak_allocated_bytes or 0, device) if quantity == "peak_allocated_bytes" else ""


def beyond(size: float, device: DeviceSpec, what: str = "held") -> str:
    """Why a device has not held so much; "" where it can have. [bytes]"""
    total = device.total_memory_bytes
    return f"{gib(size)} {what}, more than the {gib(total)} of a {device.name}" if size > total else ""


def _outliers(own: Sequence[Seen], quantity: Quantity) -> tuple[list[Seen], list[SetAside]]:
    """Runs far from the others of their plan, then plans far from the others of their stack."""
    plans: dict[str, list[Seen]] = {}
    for one in own:
        plans.setdefault(one.foretold.same, []).append(one)
    aside: list[SetAside] = []
    for key, runs in plans.items():
        logs = _logs(runs, quantity)
        if len(runs) < FEWEST_ALIKE:
            continue
        centre, most = _around(logs, SAME_PLAN[quantity])
        plans[key] = [one for one, value in zip(runs, logs, strict=True) if abs(value - centre) <= most]
        aside += [
            _odd(one, quantity, value - centre, "of the other runs of its plan")
            for one, value in zip(runs, logs, strict=True)
            if abs(value - centre) > most
        ]
    left = [(runs, _logs(runs, quantity)) for runs in plans.values() if runs]
    each = [float(np.median(logs)) for _, logs in left]
    if len(each) < FEWEST_OTHERS:
        each = [value for _, logs in left for value in logs]
    if len(each) < FEWEST_OTHERS:
        return [one for runs, _ in left for one in runs], aside
    centre, most = _around(each, OTHER_PLANS[quantity])
    good = []
    for runs, logs in left:
        # Of few runs each speaks for itself: one that is wrong would take the other with it.
        told = [float(np.median(logs))] * len(runs) if len(runs) >= FEWEST_ALIKE else logs
        for one, value in zip(runs, told, strict=True):
            if abs(value - centre) <= most:
                good.append(one)
            else:
                aside.append(_odd(one, quantity, value - centre, "of what other plans of its kind would make it"))
    return good, aside


def _around(logs: Sequence[float], factor: float) -> tuple[float, float]:
    """Their middle, and how far from it a value may lie."""
    centre = float(np.median(logs))
    spread = OF_MEDIAN * float(np.median(np.abs(np.array(logs) - centre)))
    return centre, max(MOST_DEVIATIONS * spread, log(factor))


def _logs(runs: Sequence[Seen], quantity: Quantity) -> list[float]:
    return [log(one.ratio(quantity) or 1.0) for one in runs]


def _odd(one: Seen, quantity: Quantity, off: float, against: str) -> SetAside:
    return SetAside(ref=one.run.ref, quantity=quantity, why=f"{exp(off):.2g} times that {against}")
