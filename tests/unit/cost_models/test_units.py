"""Sizes and rates that people write."""

import math
from typing import Any

import pytest

from cost_models.errors import SpecError
from cost_models.units import parse_bandwidth, parse_bytes

HUGE = ["1e300GB", "1e999", 1e300, math.inf, math.nan, 10**400, 2**53, True, "9" * 400 + "GB", "1e16"]


@pytest.mark.parametrize("value", HUGE)
def test_what_no_machine_has_is_no_size(value: Any) -> None:
    with pytest.raises(SpecError) as caught:
        parse_bytes(value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("value", [*HUGE, "1e300GB/s", "1e300Gb/s"])
def test_what_no_link_has_is_no_rate(value: Any) -> None:
    with pytest.raises(SpecError) as caught:
        parse_bandwidth(value)
    assert len(str(caught.value)) < 200


def test_units_are_what_they_say() -> None:
    assert parse_bytes("80GiB") == 80 * 2**30
    assert parse_bytes("80 GB") == 80 * 10**9
    assert parse_bandwidth("400Gb/s") == 50e9
    assert parse_bandwidth("50GB/s") == 50e9
