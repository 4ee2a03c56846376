"""How figures are written for people."""

import pytest

from planner.cli.render.figures import amount


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (503_081_000, "bytes", "0.47 GiB"),
        (80 * 2**30, "bytes", "80.00 GiB"),
        (10.0, "seconds per step", "10 seconds per step"),
        (8.0, "gpus", "8 gpus"),
        (1.5, "", "1.5"),
    ],
)
def test_an_objective_is_written_in_the_unit_that_people_read(value: float, unit: str, shown: str) -> None:
    assert amount(value, unit) == shown
