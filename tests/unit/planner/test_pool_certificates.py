"""Certificates over several pools: right ones are verified, the proof of a false claim made anew is refuted."""

import copy
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import pytest

from cost_models import catalog
from cost_models.specs.configuration import Configuration
from planner.certificate import Certificate
from planner.certifying import certified, issue
from planner.planning import plan
from planner.request import PlanRequest
from solver.audit import arranged
from solver.search import solve
from tests.scale import FULL, scaled
from tests.unit.planner.test_certificate import HUGE, TINY, faults

POOLS: dict[str, Any] = {
    "pools": [
        {"device": "rtx-4090", "nodes": 1, "gpus_per_node": 2, "price_per_gpu_hour": 0.5},
        {"device": "l40s", "nodes": 1, "gpus_per_node": 2, "price_per_gpu_hour": 1.0},
    ]
}
THREE: dict[str, Any] = {
    "pools": [
        {"device": "rtx-4090", "nodes": 1, "gpus_per_node": 1},
        {"device": "a100-sxm-40gb", "nodes": 1, "gpus_per_node": 2},
        {"device": "l40s", "nodes": 1, "gpus_per_node": 1},
    ]
}
REQUESTS: dict[str, dict[str, Any]] = {
    "fastest": TINY | {"cluster": POOLS},
    "three": TINY | {"cluster": THREE},
    "cheapest": TINY | {"cluster": POOLS, "objective": "cost"},
    "fewest": TINY | {"cluster": POOLS, "objective": ("gpus", "throughput")},
    "smallest": TINY | {"cluster": POOLS, "objective": "memory"},
    "tolerant": TINY | {"cluster": POOLS, "objective_tolerance": 0.2},
    "huge": HUGE | {"cluster": POOLS},
    "limited": TINY
    | {"cluster": POOLS, "constraints": TINY["constraints"] | {"max_gpus": 3, "max_communication_fraction": 0.4}},
}
SLOWER = {"huge", "smallest", "cheapest"}


@cache
def true(name: str) -> Certificate:
    return issue(plan(PlanRequest.read(copy.deepcopy(REQUESTS[name]))), catalog.calibration())


def forged(claim: Certificate, chosen: Configuration | None) -> list[str]:
    """What is found wrong with a certificate that is made anew from the claim that a configuration is best."""
    problem = claim.problem(catalog.calibration())
    proof, _ = certified(problem, chosen, None if chosen is None else claim.bounds)
    status: Any = "infeasible" if chosen is None else claim.status
    changes: dict[str, Any] = {"configuration": chosen, "status": status, "proof": proof}
    return faults(claim.model_copy(update=changes).sealed().to_json())


def changed(name: str, change: Any) -> list[str]:
    """What is found wrong with a certificate whose document was changed and sealed again."""
    document = copy.deepcopy(true(name).model_dump(mode="json"))
    change(document["proof"])
    return faults(Certificate.read(document).sealed().to_json())


def chosen(name: str) -> Configuration:
    found = true(name).configuration
    assert found is not None
    return found


@pytest.mark.parametrize("name", [name for name in REQUESTS if FULL or name not in SLOWER])
def test_a_certificate_over_pools_is_verified(name: str) -> None:
    assert faults(true(name).to_json()) == []
    assert (true(name).status == "infeasible") == (name == "huge")


def test_the_fastest_plan_uses_both_pools_and_every_arrangement_is_listed() -> None:
    assert {stage.pool for stage in chosen("fastest").stages} == {0, 1}
    assert len({one.pools for one in true("fastest").proof.arrangements}) == 2 + 2 + 2 * 2 * 2
    assert len(true("three").proof.arrangements) == (1 + 2 + 1) + 2 * (2 + 1 + 2) + 6 * 2


def test_an_arrangement_cannot_be_left_out() -> None:
    for at in range(scaled(1, len(true("fastest").proof.arrangements))):
        found = changed("fastest", lambda proof, at=at: proof["arrangements"].pop(at))
        assert any(fault.startswith("reproduction: proof.arrangements") for fault in found), at


def test_an_arrangement_cannot_be_ruled_out_by_word_or_by_another_floor() -> None:
    def waved_through(proof: dict[str, Any]) -> None:
        mine = next(one for one in proof["arrangements"] if one["pruned_by"])
        mine |= {"ruled_out": ["better throughput"], "pruned_by": [], "row_sets": [], "models": []}

    def raised(proof: dict[str, Any]) -> None:
        proof["arrangements"][0]["floor_seconds"] *= 2

    for change in (waved_through, raised):
        assert any(fault.startswith("reproduction") for fault in changed("fastest", change))


def test_a_stage_in_another_pool_is_not_the_best() -> None:
    best = chosen("fastest")
    for pools in ([1, 0], [0, 0], [1, 1])[: scaled(1, 3)]:
        moved = [s.model_copy(update={"pool": pool}) for s, pool in zip(best.stages, pools, strict=True)]
        if [s.pool for s in moved] != [s.pool for s in best.stages]:
            assert forged(true("fastest"), best.model_copy(update={"stages": tuple(moved)})), pools


@pytest.mark.parametrize("name", ["fastest", "cheapest"][: scaled(1, 2)])
def test_a_worse_plan_is_not_the_best(name: str) -> None:
    problem, best, refuted = true(name).problem(catalog.calibration()), chosen(name), 0
    choices = ({"tensor_parallel": (2,)}, {"pipeline_parallel": (1,)}, {"pipeline_parallel": (2,)})
    for pinned in choices[: scaled(1, 3)]:
        values: dict[str, Any] = dict(pinned)
        rival = solve(replace(problem, domains=problem.domains.with_values(**values))).configuration
        if rival is not None and rival != best:
            refuted += 1
            assert any(fault.startswith("optimality: pools") for fault in forged(true(name), rival)), pinned
    assert refuted


def test_that_nothing_fits_is_refuted_by_a_layout() -> None:
    assert any("is not discarded; layout (" in fault for fault in forged(true("fastest"), None))


def test_a_bound_cannot_be_raised() -> None:
    document = true("tolerant").model_dump(mode="json")
    value = document["proof"]["values"][0]
    value["bound"] = str(Fraction(value["bound"]) * Fraction(11, 10))
    claim = Certificate.read(document)
    assert any(fault.startswith("optimality") for fault in forged(claim, claim.configuration))


@pytest.mark.parametrize("name", ["fastest", "cheapest", "three"][: scaled(1, 3)])
def test_floors_only_spare_work(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = true(name)
    monkeypatch.setattr(arranged, "floor_ticks", lambda *_: 0.0)
    proof, wrong = certified(mine.problem(catalog.calibration()), mine.configuration, mine.bounds)
    assert wrong == ()
    batch = mine.request.training.batch_range.min
    for stated, every in zip(mine.proof.arrangements, proof.arrangements, strict=True):
        assert every.ruled_out == ()
        steps = [r.least_step_seconds for q in every.pruned_by for r in q.regions if r.least_step_seconds is not None]
        assert all(step >= stated.floor_seconds * batch for step in steps), stated.pools
