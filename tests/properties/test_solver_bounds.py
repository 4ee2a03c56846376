"""The floor of a topology is below every one of its rows, on real prices: no feature makes a micro-batch faster."""

import numpy as np
import pytest

from benchmarks.instances import problem
from solver.bounds.topology import topology_floors
from solver.legality import legality
from solver.problem import Problem
from solver.rows import priced_rows, prices
from solver.space import spaces
from tests.oracle.instances import instance
from tests.scale import scaled


def _compare(asked: Problem, topologies: int) -> int:
    compared = 0
    for index, space in enumerate(spaces(asked)):
        if not space.size:
            continue
        even = all(layout.layers == "even" for layout in legality(space.backend).layouts)
        floors = topology_floors(asked, prices(None), space, even)
        some = np.unique(np.linspace(0, space.size - 1, topologies).astype(int))
        rows = priced_rows(asked, prices(None), index, space, *space.rows(some))
        low = rows.lower < floors[rows.topology]
        assert not low.any(), rows.strategy.row(int(np.argmax(low)))
        compared += len(rows)
    return compared


@pytest.mark.parametrize("seed", range(scaled(10, 100)))
def test_floors_hold_on_random_instances(seed: int) -> None:
    _compare(instance(seed).problem(), 1000)


@pytest.mark.parametrize("name", ["I2", "I4", "I5", "I6", "I7"])
def test_floors_hold_on_the_benchmark(name: str) -> None:
    assert _compare(problem(name, "any"), scaled(20, 300)) > 100
