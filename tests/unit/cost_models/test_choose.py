"""The helpers that serve one configuration and many give the same for both."""

import numpy as np
import pytest

from cost_models.arrays import choose, somewhere


@pytest.mark.parametrize("condition", [True, False])
def test_one_truth_value_chooses_as_an_array_of_it_does(condition: bool) -> None:
    many = choose(np.array([condition, condition]), 2.0, 3.0)
    assert choose(condition, 2.0, 3.0) == choose(np.bool_(condition), 2.0, 3.0) == many[0] == many[1]


def test_an_array_of_truth_values_chooses_by_row() -> None:
    assert choose(np.array([True, False]), np.array([1.0, 2.0]), 0.0).tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    ("value", "found"), [(0.0, False), (np.float64(2), True), (np.bool_(False), False), (np.array([0, 1]), True)]
)
def test_somewhere_is_any(value: object, found: bool) -> None:
    assert somewhere(value) is found
