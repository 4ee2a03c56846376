"""Domains: whatever the short form, one normal form that allows what was meant."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.constraints import DECISIONS, Constraints
from planner.domain import Domain, parse_domain

VALUES = st.lists(st.integers(1, 64), min_size=1, max_size=5)


@given(VALUES)
def test_a_list_allows_exactly_its_values(values: list[int]) -> None:
    domain = parse_domain(values, kind="integer")
    assert domain.among(range(1, 65)) == tuple(sorted(set(values)))


@given(st.integers(1, 64), st.integers(1, 64), VALUES)
def test_a_range_without_some_values(one: int, other: int, forbidden: list[int]) -> None:
    low, high = min(one, other), max(one, other)
    domain = parse_domain({"min": low, "max": high, "forbid": forbidden}, kind="integer")
    assert domain.among(range(1, 65)) == tuple(v for v in range(low, high + 1) if v not in forbidden)


@given(VALUES, st.none() | st.integers(1, 64))
def test_the_normal_form_reads_itself(values: list[int], least: int | None) -> None:
    raw: dict[str, Any] = {"values": values} | ({} if least is None else {"min": min(least, max(values))})
    domain = parse_domain(raw, kind="integer")
    assert parse_domain(domain.model_dump(), kind="integer") == domain


@pytest.mark.parametrize("name", sorted(name for name, decision in DECISIONS.items() if decision.off is not None))
def test_forbid_alone_switches_a_decision_off(name: str) -> None:
    assert Constraints.read({name: "forbid"}).domain(name) == Domain(values=(DECISIONS[name].off,))


def test_what_is_not_stated_allows_everything_lossless() -> None:
    constraints = Constraints()
    assert constraints.domain("tensor_parallel").allows(7)
    assert constraints.domain("gradient_compression").among(("none", "int8")) == ("none",)
    assert Constraints.read({"gradient_compression": "lossy"}).domain("gradient_compression").allows("int8")


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (2, "2"),
        ([1, 2], "one of 1, 2"),
        ({"min": 2}, "at least 2"),
        ({"min": 2, "max": 8, "forbid": [4]}, "at least 2 and at most 8 and not 4"),
    ],
)
def test_a_domain_reads_as_a_person_would_write_it(raw: Any, text: str) -> None:
    assert str(parse_domain(raw, kind="integer")) == text
