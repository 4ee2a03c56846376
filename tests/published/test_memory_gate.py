"""Peaks on the part of every source that no fit may touch: a change that loses some accuracy fails here.

The ceilings are what the shipped ledger reaches, and half as much again for small parts. Lower them when it gets
better; never raise one without saying why in the commit.
"""

from functools import cache

import numpy as np
import pytest

from cost_models.catalog import calibration
from planner.datasets.header import read_directory
from planner.fitting.evidence import held_out
from planner.fitting.shipping import folder
from planner.uncertainty import LEVELS
from planner.validate.comparison import Comparison, compare, shipped_pricing

CEILINGS = {
    "bigscience a100": 0.075,
    "bigscience v100": 0.18,
    "fitcheck": 0.045,
    "megatron-ci toy": 0.025,
    "simumax dense": 0.012,
}
"""Mean absolute error of the printed peak on held-out rows that state every choice."""
FEWEST_INSIDE = {"80": 0.65, "90": 0.75}
"""Share of all held-out peaks in their intervals; 109 rows have a sampling error of 4 points."""


@cache
def judged() -> tuple[Comparison, ...]:
    """The held-out rows that state a peak and can be predicted."""
    constants = calibration()
    pricing = shipped_pricing(constants)
    rows = [r for r in read_directory(folder() / "measurements").measurements if r.states_memory and held_out(r)]
    found = (comparison for row in rows for comparison in compare(row, constants, pricing))
    return tuple(c for c in found if c.quantity == "peak_memory" and c.used and c.error is not None)


def errors(group: str) -> list[float]:
    own = [c for c in judged() if f"{c.row.source} {c.part}".strip() == group and not c.scenarios]
    return [abs(c.error) for c in own if c.error is not None]


@pytest.mark.parametrize("group", CEILINGS)
def test_held_out_peaks_are_predicted_as_well_as_promised(group: str) -> None:
    found = errors(group)
    assert len(found) >= 3
    assert np.mean(found) <= CEILINGS[group]


def test_no_ceiling_has_room_for_a_tenth_more() -> None:
    """Were all peaks predicted a tenth larger, the tight groups would leave their ceilings."""
    leaving = []
    for group, ceiling in CEILINGS.items():
        own = [c for c in judged() if f"{c.row.source} {c.part}".strip() == group and not c.scenarios]
        larger = [abs(1.1 * (c.error + 1) - 1) for c in own if c.error is not None]
        leaving += [group] if np.mean(larger) > ceiling else []
    assert {"fitcheck", "megatron-ci toy", "simumax dense"} <= set(leaving)


@pytest.mark.parametrize("level", LEVELS)
def test_intervals_hold_their_share(level: str) -> None:
    inside = [
        c.intervals[level][0] <= float(c.measured or 0) <= c.intervals[level][1]
        for c in judged()
        if level in c.intervals
    ]
    assert np.mean(inside) >= FEWEST_INSIDE[level]


def test_what_is_left_open_is_inside_its_scenarios() -> None:
    """Of rows whose kernel was left to `auto`, nine of ten lie inside what is reported for them."""
    undecided = [c for c in judged() if c.scenarios and "90" in c.intervals]
    inside = [c.intervals["90"][0] <= float(c.measured or 0) <= c.intervals["90"][1] for c in undecided]
    assert len(inside) >= 20
    assert np.mean(inside) >= 0.9
