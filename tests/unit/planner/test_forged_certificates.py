"""Forged certificates: whoever knows the code makes the proof of a false claim anew and seals it; it is refuted."""

import copy
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import pytest

from cost_models import catalog
from cost_models.errors import SpecError
from cost_models.specs.configuration import Configuration, RecomputeCounts
from planner.certificate import Certificate
from planner.certifying import certified, issue, over
from planner.plan import Plan
from planner.planning import plan
from planner.request import PlanRequest
from solver.search import solve
from tests.scale import scaled
from tests.unit.planner.test_certificate import TINY, faults

TOLERANT = TINY | {"objective_tolerance": 0.2}
LISTED = TINY | {"objective": ["memory", "throughput"]}


@cache
def answered(name: str) -> Plan:
    request = {"tiny": TINY, "tolerant": TOLERANT, "listed": LISTED}[name]
    return plan(PlanRequest.read(copy.deepcopy(request)))


@cache
def true(name: str) -> Certificate:
    return issue(answered(name), catalog.calibration())


def forged(name: str, chosen: Configuration | None, status: Any = "optimal") -> str:
    """A certificate that says a configuration is best, with everything in it made from that claim."""
    claim = true(name).model_copy(update={"configuration": chosen, "status": status})
    problem = claim.problem(catalog.calibration())
    problem = over(problem, [int(n) for n in claim.proof.space.domains["gpus"] or ()])
    proof, _ = certified(problem, chosen, None if chosen is None else claim.bounds)
    return claim.model_copy(update={"proof": proof}).sealed().to_json()


def resealed(document: dict[str, Any]) -> list[str]:
    """What is found wrong with a changed document that has its own hash."""
    try:
        return faults(Certificate.read(document).sealed().to_json())
    except SpecError as error:
        return [f"unreadable: {error}"]


def others(name: str) -> Iterator[Configuration]:
    """Best configurations under pinned choices: all of them legal, and worse or later in the order of ties."""
    problem, best = true(name).problem(catalog.calibration()), true(name).configuration
    columns = (
        {"tensor_parallel": (1,)}, {"zero_stage": (0,)}, {"micro_batch_size": (1,)}, {"recompute": ("full",)},
        {"pipeline_parallel": (2,)}, {"sequence_parallel": (True,)}, {"cross_entropy": ("vocab_parallel",)},
    )  # fmt: skip
    for pinned in columns[: scaled(4, len(columns))]:
        values: dict[str, Any] = dict(pinned)
        found = solve(replace(problem, domains=problem.domains.with_values(**values))).configuration
        if found is not None and found != best:
            yield found


@pytest.mark.parametrize("name", ["tiny", "listed"])
def test_another_configuration_is_not_the_best(name: str) -> None:
    rivals = list(others(name))
    assert len(rivals) >= 2
    for rival in rivals:
        assert any(fault.startswith("optimality") for fault in faults(forged(name, rival))), rival


def test_a_layout_that_recomputes_more_than_it_must_is_not_the_plainest() -> None:
    best = true("tiny").configuration
    assert best is not None
    stage = best.stages[0]
    wasteful = stage.model_copy(
        update={"recompute": RecomputeCounts(none=0, selective=0, full=stage.layers, interval=1)}
    )
    assert stage.recompute != wasteful.recompute
    assert faults(forged("tiny", best.model_copy(update={"stages": (wasteful, *best.stages[1:])})))


def test_nothing_fits_is_refuted_by_a_layout() -> None:
    assert any("is not discarded; layout (" in fault for fault in faults(forged("tiny", None, "infeasible")))


@pytest.mark.parametrize("factor", ["1/2", "9/10", "11/10"])
def test_a_tolerance_is_counted_from_the_optimum_alone(factor: str) -> None:
    document = true("tolerant").model_dump(mode="json")
    for value in document["proof"]["values"]:
        value["bound"] = str(Fraction(value["bound"]) * Fraction(factor))
    claim = Certificate.read(document)
    problem = over(claim.problem(catalog.calibration()), [2])
    proof, _ = certified(problem, claim.configuration, claim.bounds)
    assert any(f.startswith("optimality") for f in faults(claim.model_copy(update={"proof": proof}).sealed().to_json()))


@pytest.mark.parametrize(
    "bound", ["1e9999999", "1/0", "nan", "inf", "-1", "", "1" * 400, "٣", "1 / 2", "0x10", "1_0", "1/00", "2.5"]
)
def test_numbers_that_are_no_fractions_are_faults(bound: str) -> None:
    document = true("tolerant").model_dump(mode="json")
    document["proof"]["values"][0]["bound"] = bound
    assert resealed(document)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "1" * 5000, "-0.0", "1E0", "01"])
def test_numbers_that_json_lacks_or_writes_otherwise_are_faults(number: str) -> None:
    text, swaps = re.subn(r'"rounding_seconds": [^,]+', f'"rounding_seconds": {number}', true("tiny").to_json())
    assert swaps == 1
    assert faults(text)


def test_a_key_given_twice_is_refused() -> None:
    text = true("tiny").to_json()
    assert (
        "given twice" in faults(text.replace('"status": "optimal"', '"status": "optimal",\n  "status": "optimal"'))[0]
    )


def test_a_permutation_is_not_what_was_issued() -> None:
    document = true("tiny").model_dump(mode="json")
    assert faults(json.dumps(dict(reversed(document.items())), indent=2) + "\n")
    for key in ("pruned_by", "models"):
        proof = document["proof"] | {key: document["proof"][key][::-1]}
        swapped = Certificate.read(document | {"proof": proof}).sealed()
        assert swapped.proof == true("tiny").proof or faults(swapped.to_json()), key


def test_a_proof_of_another_request_is_no_proof() -> None:
    mine, other = true("tiny"), true("listed")
    forgery = mine.model_copy(update={"request": other.request})
    assert any(fault.startswith("identity") for fault in faults(forgery.sealed().to_json()))
    swapped = mine.model_copy(update={"request": other.request, "identity": other.identity})
    assert faults(swapped.sealed().to_json())


def test_what_is_discarded_cannot_be_left_out() -> None:
    document = true("tiny").model_dump(mode="json")
    for change in ("regions", "arguments", "row_sets", "models"):
        forgery = copy.deepcopy(document)
        question = forgery["proof"]["pruned_by"][0]
        if change == "regions":
            question["regions"] = question["regions"][:-1]
        elif change == "arguments":
            question["arguments"] = forgery["proof"]["pruned_by"][-1]["arguments"][::-1]
        elif change == "row_sets":
            forgery["proof"]["space"]["row_sets"][0]["rows"] -= 1
        else:
            forgery["proof"]["models"] = forgery["proof"]["models"][1:]
        assert any(f.startswith("reproduction") for f in resealed(forgery)), change


def test_a_foreign_model_is_named_and_not_solved() -> None:
    document = true("tiny").model_dump(mode="json")
    document["proof"]["models"][0]["protobuf"] = document["proof"]["models"][-1]["protobuf"]
    found = resealed(document)
    assert any("is no model of this answer" in fault for fault in found)


@pytest.mark.parametrize(
    "change",
    [
        {"pool": 1}, {"layers": 3}, {"layers": 10**9}, {"optimizer_layers_offloaded": 4},
        {"recompute": {"none": 0, "selective": 0, "full": 2, "interval": 1}},
    ],
)  # fmt: skip
def test_a_stage_that_cannot_be_is_a_fault(change: dict[str, Any]) -> None:
    document = true("tiny").model_dump(mode="json")
    document["configuration"]["stages"][0] |= change
    assert resealed(document)


@pytest.mark.parametrize("gpus", [[], [1], [1, 2, 3], ["2"], [True, 2], [2, 2], None])
def test_other_numbers_of_devices_are_faults(gpus: Any) -> None:
    document = true("tiny").model_dump(mode="json")
    document["proof"]["space"]["domains"]["gpus"] = gpus
    assert resealed(document)


def test_a_plan_that_ran_out_of_budget_claims_its_bound_and_no_tolerance() -> None:
    found = answered("tolerant")
    assert found.optimality is not None
    objectives = [entry | {"bound": entry["bound"] * 0.9} for entry in found.optimality.certificate["objectives"]]
    optimality = found.optimality.model_copy(
        update={"certificate": found.optimality.certificate | {"objectives": objectives}, "proven": False}
    )
    cut = found.model_copy(update={"status": "feasible", "optimality": optimality})
    assert faults(issue(cut, catalog.calibration()).to_json()) == []
