"""Frontiers of a benchmark instance: their ends are what the objectives alone find, nothing on them is beaten."""

import itertools

from benchmarks.instances import problem
from solver.frontier import time_memory
from solver.search import solve


def test_the_ends_of_a_frontier_are_the_best_by_each_objective() -> None:
    asked = problem("I4", "any")
    front = time_memory(asked, 3)
    assert len(front.points) == 3
    assert not front.complete
    values = [tuple(o.value for o in point.objectives) for point in front.points]
    assert values[0][0] == solve(asked).value
    assert all(point.status == "optimal" and all(o.proven for o in point.objectives) for point in front.points)
    for faster, leaner in itertools.pairwise(values):
        assert faster[0] < leaner[0]
        assert faster[1] > leaner[1]
