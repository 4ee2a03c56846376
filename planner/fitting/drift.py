"""Drift: the last runs of a kind lie outside of what a calibration says of them, one after another."""

from collections.abc import Sequence
from datetime import datetime
from statistics import median
from typing import Final

from cost_models.calibration import Calibration, Factor
from cost_models.specs.base import Spec
from planner.fitting.sifting import impossible
from planner.fitting.site_runs import QUANTITIES, Quantity, Seen, by_stack
from planner.uncertainty import DRIFT

LOOKED_AT: Final = 5
"""Last runs of a framework on a device family that are looked at."""
ENOUGH: Final = 4
"""So many of them on one side of their intervals are drift. Where nine runs in ten lie within, and the others on both
sides alike, that is one chance in 30,000; one wrong run, or two, never do it."""
RECOVERED: Final = 1
"""With so few of them outside a drift that was found is over."""


class Drift(Spec):
    """The last runs of a kind, against one quantity of their predictions."""

    framework: str
    family: str
    quantity: Quantity
    runs: int
    """Looked at."""
    outside: int
    """Of them beyond the 90 % interval, all on one side."""
    ratio: float
    """Measured over predicted, median of those outside; of all where none is."""
    since: datetime
    """When the first of those outside was reported."""
    drifting: bool
    calm: bool
    """Whether the runs are as predicted."""


def drifts(found: Sequence[Seen]) -> tuple[Drift, ...]:
    """What the last runs of every stack say, oldest first, of the calibration that foretold them."""
    told = []
    for (framework, family), own in by_stack(found).items():
        for quantity in QUANTITIES:
            last = [
                one
                for one in own
                if one.ratio(quantity) and quantity in one.foretold.intervals and not impossible(one, quantity)
            ][-LOOKED_AT:]
            if not last:
                continue
            side = max((1, -1), key=lambda way: sum(_side(one, quantity) == way for one in last))
            outside = [one for one in last if _side(one, quantity) == side]
            told.append(
                Drift(
                    framework=framework,
                    family=family,
                    quantity=quantity,
                    runs=len(last),
                    outside=len(outside),
                    ratio=median(one.ratio(quantity) or 1.0 for one in outside or last),
                    since=(outside or last)[0].run.at,
                    drifting=len(outside) >= ENOUGH,
                    calm=len(last) == LOOKED_AT and len(outside) <= RECOVERED,
                )
            )
    return tuple(told)


def noted(calibration: Calibration, told: Sequence[Drift]) -> Calibration:
    """The calibration with a note of every drift, from which plans warn, and without those that are over."""
    factors = dict(calibration.factors)
    for one in told:
        key = f"{DRIFT}.{one.quantity}.{one.framework}@{one.family}"
        if one.drifting and key not in factors:
            since = one.since.isoformat(timespec="seconds")
            source = f"{one.outside} of the last {one.runs} runs lie outside of their intervals, since {since}"
            factors[key] = Factor(value=float(f"{one.ratio:.3g}"), source=source)
        elif one.calm:
            factors.pop(key, None)
    if factors.keys() == calibration.factors.keys():
        return calibration
    return Calibration(version=calibration.version, factors=factors, data=calibration.data)


def _side(one: Seen, quantity: Quantity) -> int:
    """1 above the interval, -1 below it."""
    low, high = one.foretold.intervals[quantity]
    measured = (one.ratio(quantity) or 1.0) * one.foretold.values[quantity]
    return int(measured > high) - int(measured < low)
