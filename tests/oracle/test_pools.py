"""Several pools against brute force: same feasibility, same objective, whichever part of the cluster is used."""

from dataclasses import replace

import pytest

from cost_models import catalog
from cost_models.memory import memory_ledger
from cost_models.placement import placement_of
from cost_models.time import time_ledger
from solver.conflicts import minimal_conflict
from solver.dominance import Pruning
from solver.feasibility import feasible
from solver.levers import NUMBERS
from solver.relaxations import moved
from solver.search import solve
from tests.oracle.instances import Instance
from tests.oracle.pools import Priced, everything, pooled, problem
from tests.scale import scaled


def priced(case: Instance) -> list[Priced]:
    """Every configuration that fits, by the scalar ledgers."""
    found, calibration = [], catalog.calibration()
    for c in everything(case):
        if not memory_ledger(case.job, c, calibration, oom_risk=0.01).fits:
            continue
        seconds = time_ledger(case.job, c, calibration).step_seconds
        ranks = c.world_size // c.pipeline_parallel
        prices = [case.job.cluster.pools[pool].price_per_gpu_hour or 0.0 for pool in placement_of(c)]
        found.append(Priced(seconds, seconds * ranks * sum(prices) / 3600, c))
    return found


@pytest.mark.parametrize("seed", range(scaled(16, 200)))
def test_fastest_and_cheapest_over_pools_equal_brute_force(seed: int) -> None:
    case = pooled(seed)
    every = priced(case)
    for name in ("throughput", "cost"):
        solution = solve(problem(case, objectives=(name,)))
        assert (solution.status == "infeasible") == (not every)
        if not every:
            continue
        assert solution.status == "optimal"
        best = min(every, key=lambda p: p.seconds if name == "throughput" else p.cost)
        value = best.seconds if name == "throughput" else best.cost
        slack = solution.rounding_seconds * (1 if name == "throughput" else best.cost / best.seconds * 4)
        assert value <= solution.value * (1 + 1e-9), "brute force is the optimum of the unrounded model"
        assert solution.value <= value + slack, f"brute force found {value} with {best.configuration}"


@pytest.mark.parametrize("seed", range(scaled(12, 150)))
def test_feasible_over_pools_is_what_brute_force_says_and_more_memory_mends_it(seed: int) -> None:
    case = pooled(1300 + seed)
    asked, fits = problem(case), bool(priced(case))
    assert bool(feasible(asked)) == fits
    if fits:
        return
    conflict = minimal_conflict(asked)
    assert {demand.resource for demand in conflict} <= {"gpu_memory", "host_memory"}
    (lever,) = [number for number in NUMBERS if number.name == "device_memory"]
    found = moved(asked, lever)
    if found.feasible:
        for units, works in ((found.units, True), (found.units - 1, False)):
            changed = lever.at(asked, units)
            assert changed is not None
            assert bool(priced(replace(case, job=changed.job))) == works


@pytest.mark.parametrize("seed", range(scaled(8, 60)))
def test_pruning_changes_nothing_over_pools(seed: int) -> None:
    case = pooled(700 + seed)
    everything_bounded = Pruning(
        sequence_parallel=False, topology_floor=False, necessary_memory=False, first_bound=False
    )
    for name in ("throughput", "cost"):
        asked = problem(case, objectives=(name,))
        with_, without = solve(asked), solve(asked, pruning=everything_bounded)
        assert with_.status == without.status
        if with_.configuration is not None:
            assert with_.value == without.value


@pytest.mark.parametrize("seed", range(scaled(4, 40)))
def test_fewest_devices_over_pools(seed: int) -> None:
    case = pooled(900 + seed)
    counts = [p.configuration.world_size for p in priced(case)]
    solution = solve(problem(case, objectives=("gpus",)))
    assert (solution.status == "infeasible") == (not counts)
    if counts:
        assert solution.value == min(counts)
        assert solution.configuration is not None
        assert solution.configuration.world_size == min(counts)
