"""Frontiers against the list of every layout of every row, on seeded random instances."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from solver.caps import caps
from solver.frontier import ladder, time_counts, time_memory
from solver.groups import grouped
from solver.objectives import objective
from solver.problem import Problem
from solver.rounding import MEMORY_UNIT, TICK_SECONDS
from solver.rows import priced_rows, prices, with_memory
from solver.space import every_topology, rows_of, spaces
from tests.oracle.instances import instance
from tests.oracle.layouts import layouts, pay
from tests.oracle.test_objectives import on_four_gpus
from tests.scale import scaled

EVERY = 10_000
"""More points than any of these frontiers has."""


def paid(problem: Problem) -> set[tuple[Fraction, int]]:
    """Time and memory of every layout that fits."""
    at, price, limits = spaces(problem), prices(None), caps(problem)
    rows = priced_rows(problem, price, at, *rows_of(at, *every_topology(at)))
    if not len(rows):
        return set()
    memory, least = with_memory(problem, price, rows, limits)
    time, found = objective("throughput", problem), set()
    for group in grouped(problem, rows, memory, np.full(len(rows), np.inf), least):
        for index in range(len(group.rows)):
            row, weight = group.row(index), time.weight(group.rows.strategy.row(index))
            costs = (pay(row, layout) for layout in layouts(row))
            found |= {(weight * cost.time, cost.memory) for cost in costs if cost.fits}
    return found


def undominated(points: set[tuple[Fraction, int]]) -> list[tuple[float, float]]:
    """Those that nothing beats, fastest first, in seconds and bytes."""
    kept: list[tuple[Fraction, int]] = []
    for point in sorted(points):
        if not kept or point[1] < kept[-1][1]:
            kept.append(point)
    return [(float(time) * TICK_SECONDS, float(memory) * MEMORY_UNIT) for time, memory in kept]


def front(problem: Problem, points: int = EVERY) -> list[tuple[float, float]]:
    """The frontier that the solver finds."""
    found = time_memory(problem, points)
    return [(p.objectives[0].value, p.objectives[1].value) for p in found.points]


@pytest.mark.parametrize("seed", range(scaled(16, 160)))
def test_the_frontier_is_that_of_all_layouts(seed: int) -> None:
    problem = instance(5000 + seed).problem()
    expected = undominated(paid(problem))
    found = time_memory(problem, EVERY)
    assert found.complete
    assert all(o.proven for p in found.points for o in p.objectives)
    assert [(p.objectives[0].value, p.objectives[1].value) for p in found.points] == expected


@pytest.mark.parametrize("seed", range(scaled(6, 60)))
def test_fewer_points_are_a_part_of_the_frontier_and_say_so(seed: int) -> None:
    problem = instance(5000 + seed).problem()
    every, some = time_memory(problem, EVERY), time_memory(problem, 3)
    whole = [(p.objectives[0].value, p.objectives[1].value) for p in every.points]
    part = [(p.objectives[0].value, p.objectives[1].value) for p in some.points]
    assert set(part) <= set(whole)
    assert len(part) == min(3, len(whole))
    assert some.complete == (part == whole)
    assert part[:1] == whole[:1]
    assert part[-1:] == whole[-1:]


@pytest.mark.parametrize("seed", range(scaled(6, 60)))
def test_wider_domains_never_worsen_a_frontier(seed: int) -> None:
    case = instance(5000 + seed)
    narrow = replace(case, choices={key: values[:1] for key, values in case.choices.items()})
    wide = front(case.problem())
    for time, memory in front(narrow.problem()):
        assert any(t <= time and m <= memory for t, m in wide)


@pytest.mark.parametrize("seed", range(scaled(4, 40)))
def test_the_frontier_over_counts_is_that_of_the_bests(seed: int) -> None:
    case = on_four_gpus(instance(2000 + seed))
    problem = case.problem()
    rungs = ladder(problem, (1, 2, 4))
    bests = {
        rung.gpus: rung.solution.value for rung in rungs if rung.solution is not None and rung.solution.configuration
    }
    price = case.job.pool.price_per_gpu_hour
    assert price is not None
    for axis, amounts in (("gpus", bests), ("cost", {n: n * t * price / 3600 for n, t in bests.items()})):
        expected = {
            (bests[n], n)
            for n in bests
            if not any(
                bests[k] <= bests[n] and amounts[k] <= amounts[n] and (bests[k], amounts[k]) != (bests[n], amounts[n])
                for k in bests
            )
        }
        found = time_counts(problem, rungs, axis, EVERY)  # type: ignore[arg-type]
        assert found.complete
        points = [(p.objectives[0].value, p.configuration.world_size) for p in found.points if p.configuration]
        assert points == sorted(expected), "fastest first"
