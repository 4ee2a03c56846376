"""The floor of a topology is below every one of its rows, on real prices: no feature makes a micro-batch faster."""

import numpy as np
import pytest

from benchmarks.instances import problem
from solver.bounds.topology import topology_floors
from solver.problem import Problem
from solver.rows import priced_rows, prices
from solver.space import every_topology, rows_of, spaces
from tests.oracle.instances import instance
from tests.scale import scaled


def _compare(asked: Problem, topologies: int) -> int:
    at = spaces(asked)
    owner, topology = every_topology(at)
    if not len(owner):
        return 0
    floors = topology_floors(asked, prices(None), at, lambda rows: np.ones(len(rows)))
    some = np.unique(np.linspace(0, len(owner) - 1, topologies * len(at)).astype(int))
    rows = priced_rows(asked, prices(None), at, *rows_of(at, owner[some], topology[some]))
    starts = np.cumsum([0, *(space.size for space in at)])
    low = rows.lower < floors[starts[rows.space] + rows.topology]
    assert not low.any(), rows.strategy.row(int(np.argmax(low)))
    return len(rows)


@pytest.mark.parametrize("seed", range(scaled(10, 100)))
def test_floors_hold_on_random_instances(seed: int) -> None:
    _compare(instance(seed).problem(), 1000)


@pytest.mark.parametrize("name", ["I2", "I4", "I5", "I6", "I7"])
def test_floors_hold_on_the_benchmark(name: str) -> None:
    assert _compare(problem(name, "any"), scaled(20, 300)) > 100
