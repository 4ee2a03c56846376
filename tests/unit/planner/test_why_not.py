"""Why not: the best plan under other choices, what it costs term by term, or the rule that forbids it."""

import copy
import json
from typing import Any

import pytest

from cost_models.errors import BrokenRule, SpecError
from planner.cli import main
from planner.cli.asked import request_data
from planner.planning import plan
from planner.request import PlanRequest
from planner.why_not import against, pins
from tests.unit.planner.requests import SMALL

FLAGS = ["--model", "llama-3.2-1b", "--device", "a100-sxm-80gb", "--gpus", "4", "--backend", "megatron"]
FLAGS += ["--sequence-length", "2048", "--global-batch-size", "16"]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("zero_stage=3", ["zero_stage=3"]),
        ("tensor_parallel=8,zero_stage=3", ["tensor_parallel=8", "zero_stage=3"]),
        ("zero_stage=[1, 2], recompute=none", ["zero_stage=[1, 2]", "recompute=none"]),
        ("tensor_parallel={min: 2, max: 4},max_gpus=8", ["tensor_parallel={min: 2, max: 4}", "max_gpus=8"]),
    ],
)
def test_choices_are_told_apart(text: str, parts: list[str]) -> None:
    assert pins(text) == parts


def test_the_cost_is_told_term_by_term() -> None:
    best, other = (
        plan(PlanRequest.read(copy.deepcopy(SMALL) | {"constraints": wish})) for wish in ({}, {"recompute": "full"})
    )
    found = against("recompute=full", best, other)
    assert found.value is not None
    assert found.step_seconds is not None
    assert found.seconds is not None
    assert found.value > 0
    assert sum(found.seconds.values()) == pytest.approx(found.step_seconds, rel=1e-6)
    assert against("nothing", best, best).seconds == {}


def test_a_listed_rival_is_the_plan_that_pins_its_structure() -> None:
    best = plan(PlanRequest.read(copy.deepcopy(SMALL)))
    assert best.alternatives
    parallel = ("tensor", "context", "pipeline", "expert", "data")
    names = (*(f"{name}_parallel" for name in parallel), "zero_stage")
    for rival in best.alternatives[:2]:
        chosen = rival.configuration
        wish = {name: getattr(chosen, name) for name in names}
        again = plan(PlanRequest.read(copy.deepcopy(SMALL) | {"constraints": wish, "backend": chosen.backend.name}))
        assert again.configuration == chosen
        assert again.optimality is not None
        assert rival.value == pytest.approx(again.optimality.value, rel=1e-8)


def asked(choice: str, capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, Any], str]:
    assert main(["plan", *FLAGS, "--why-not", choice, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert main(["plan", *FLAGS, "--why-not", choice]) == 0
    return document, capsys.readouterr().out


def test_several_choices_are_planned_together(capsys: pytest.CaptureFixture[str]) -> None:
    choice = "tensor_parallel=2,pipeline_parallel=2"
    document, shown = asked(choice, capsys)
    chosen = document["why_not"][choice]["configuration"]
    assert (chosen["tensor_parallel"], chosen["pipeline_parallel"]) == (2, 2)
    (found,) = document["against"]
    assert found["share"] > 0
    assert found["forbidden"] is None
    assert "Why not tensor_parallel=2,pipeline_parallel=2?" in shown
    assert "  time: " in shown


def test_the_rule_that_forbids_a_choice_is_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    document, shown = asked("zero_stage=2,pipeline_parallel=2", capsys)
    (found,) = document["against"]
    assert "zero_stage 2 exceeds 1 with pipeline_parallel 2" in found["forbidden"]
    assert "with it there is no plan" in shown
    document, shown = asked("tensor_parallel=5", capsys)
    assert document["why_not"] == {}
    assert "5 does not divide num_attention_heads 32" in document["against"][0]["forbidden"]
    assert "it is forbidden" in shown


def test_a_choice_that_no_one_knows_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *FLAGS, "--why-not", "tensor_paralel=2"]) == 2
    assert "tensor_paralel is no constraint" in capsys.readouterr().err


def test_a_number_of_gpus_is_a_choice(capsys: pytest.CaptureFixture[str]) -> None:
    document, _ = asked("gpus=2", capsys)
    (rival,) = document["why_not"].values()
    assert rival["request"]["constraints"]["max_gpus"] == rival["request"]["constraints"]["min_gpus"] == 2
    assert document["against"][0]["value"] > 0


def test_a_degree_that_divides_no_devices_is_forbidden_for_that(capsys: pytest.CaptureFixture[str]) -> None:
    document, _ = asked("pipeline_parallel=3", capsys)
    assert "no way to split the devices and the batch has these values" in document["against"][0]["forbidden"]


@pytest.mark.parametrize("choice", ["zero_stage=1,zero_stage=3", "zero_stage=1, constraints.zero_stage=3"])
def test_a_key_pinned_twice_is_refused_with_both_values(choice: str) -> None:
    with pytest.raises(BrokenRule, match=r"pins zero_stage twice: 'zero_stage=1' and '.*zero_stage=3'"):
        pins(choice)


@pytest.mark.parametrize("choice", ["tensor_paralel=2", "tensor_parallel"])
def test_an_error_names_the_option_that_was_given(choice: str) -> None:
    with pytest.raises(SpecError, match=f"^--why-not '{choice}'"):
        request_data(None, {}, None, decisions="constraints", pins=pins(choice))
