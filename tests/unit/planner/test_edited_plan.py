"""A plan knows whether it was edited; an edited one is exported with a warning, and only when it is legal."""

import json
from pathlib import Path
from typing import Any

import pytest

from cost_models.errors import BrokenRule
from planner.cli.app import main
from planner.exporters import render
from planner.plan import Plan
from planner.planning import estimate
from planner.request import PlanRequest
from tests.unit.planner.plans import plan

Captured = pytest.CaptureFixture[str]
REQUEST: dict[str, Any] = {
    "model": {"preset": "llama-2-7b"},
    "cluster": {"pools": [{"device": "a100-sxm-80gb", "nodes": 1, "gpus_per_node": 8}]},
    "training": {"sequence_length": 4096, "global_batch_size": 128},
    "configuration": {"backend": "deepspeed", "zero_stage": 3, "micro_batch_size": 2, "recompute": "full"},
}


@pytest.fixture(scope="module")
def made() -> Plan:
    return estimate(PlanRequest.read(REQUEST))


def changed(made: Plan, **configuration: Any) -> Plan:
    data = json.loads(made.to_json())
    data["configuration"] |= configuration
    return Plan.from_json(json.dumps(data))


def test_a_plan_is_not_edited_by_being_stored_or_sent(made: Plan) -> None:
    assert made.envelope.content_sha256 == made.content_hash()
    assert not Plan.from_json(made.to_json()).edited
    assert not Plan.from_json(made.model_dump_json()).edited


def test_order_and_spelling_of_numbers_are_no_edit(made: Plan) -> None:
    def respelt(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: respelt(value[key]) for key in reversed(list(value))}
        if isinstance(value, list):
            return [respelt(item) for item in value]
        return int(value) if isinstance(value, float) and value.is_integer() else value

    assert not Plan.from_json(json.dumps(respelt(json.loads(made.to_json())))).edited


def test_the_envelope_is_outside_the_hash(made: Plan) -> None:
    envelope = made.envelope.model_copy(update={"id": "another", "host": "elsewhere"})
    assert not made.model_copy(update={"envelope": envelope}).edited


def test_a_plan_without_a_recorded_hash_is_taken_at_its_word() -> None:
    assert plan().envelope.content_sha256 is None
    assert not plan().edited


def test_a_legal_edit_is_exported_and_says_so(made: Plan, tmp_path: Path, capsys: Captured) -> None:
    edited = changed(made, micro_batch_size=4, gradient_accumulation_steps=4)
    assert edited.edited
    (tmp_path / "plan.json").write_text(edited.to_json())
    assert main(["export", str(tmp_path / "plan.json"), "--to", "deepspeed", "--json"]) == 0
    out, err = capsys.readouterr()
    assert err.startswith("warning: the plan was changed after it was made")
    files = {item["path"]: item["text"] for item in json.loads(out)}
    assert json.loads(files["ds_config.json"])["train_micro_batch_size_per_gpu"] == 4
    assert json.loads(files["ds_config.json"])["_meshwright"]["edited"].startswith("the plan was changed")
    assert "# edited: the plan was changed" in files["launch.sh"]


def test_an_unedited_plan_is_exported_without_a_word(made: Plan, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "plan.json").write_text(made.to_json())
    assert main(["export", str(tmp_path / "plan.json"), "--to", "deepspeed"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "edited" not in out


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"micro_batch_size": 3}, "is 192 but training.global_batch_size is 128"),
        ({"data_parallel": 16, "gradient_accumulation_steps": 4}, "is 16 but the cluster has 8 GPUs"),
        ({"stages": [{"layers": 31, "recompute": {"full": 31}}]}, "hold 31 layers but num_hidden_layers is 32"),
        ({"cuda_graph": True}, "deepspeed: "),
        ({"tensor_parallel": 3, "data_parallel": 2, "gradient_accumulation_steps": 32}, "deepspeed: "),
    ],
)
def test_an_illegal_edit_is_refused_by_its_rule(
    made: Plan, changes: dict[str, Any], message: str, tmp_path: Path, capsys: Captured
) -> None:
    edited = changed(made, **changes)
    with pytest.raises(BrokenRule, match=r"^the edited plan: ") as caught:
        render(edited, "deepspeed")
    assert message in str(caught.value)
    (tmp_path / "plan.json").write_text(edited.to_json())
    assert main(["export", str(tmp_path / "plan.json"), "--to", "deepspeed"]) == 2
    assert message in capsys.readouterr().err
