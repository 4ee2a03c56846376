"""Drift: a change that moves predictions shows which, and by how much."""

import csv

import pytest

from tests.golden.predictions import TABLE, rows

TOLERANCE = 2e-4
"""Half a unit of the last digit kept, so that other processors' last bits do not fail."""


def test_predictions_are_those_of_the_golden_table() -> None:
    """If this is wanted: `python -m tests.golden.predictions`, and say in the commit why predictions moved."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        golden = list(csv.DictReader(file))
    moved = []
    for before, now in zip(golden, rows(), strict=True):
        for key, value in now.items():
            same = value == before[key]
            if not same:
                try:
                    same = float(value) == pytest.approx(float(before[key]), rel=TOLERANCE)
                except ValueError:
                    same = False
            if not same:
                moved.append(f"{now['model']} {now['device']} {now['configuration']} {key}: {before[key]} -> {value}")
    assert not moved, f"{len(moved)} predictions moved:\n" + "\n".join(moved[:20])
