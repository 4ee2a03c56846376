"""What numbers alone forbid is refused at once, with both numbers and what works instead."""

from typing import Any

import pytest

from cost_models.errors import BrokenRule
from planner.cli.app import main
from planner.request import PlanRequest
from planner.resolve import resolve
from tests.unit.planner.requests import GOOD, changed

FLAGS = ["plan", "--device", "a100-sxm-80gb", "--sequence-length", "4096", "--global-batch-size", "64"]


def asked(gpus: int, preset: str = "llama-2-7b", **parts: Any) -> PlanRequest:
    data = changed("cluster.pools.0.nodes", gpus // 8, GOOD) | {"model": {"preset": preset}} | parts
    data["training"] = {"sequence_length": 4096, "global_batch_size": 64}
    return PlanRequest.read(data)


@pytest.mark.parametrize(
    ("constraints", "words"),
    [
        ({"tensor_parallel": 16}, "tensor_parallel 16 does not divide num_attention_heads 40; 8 does"),
        ({"tensor_parallel": [16, 32]}, "tensor_parallel 16, 32: none divides num_attention_heads 40; 8 does"),
        ({"expert_parallel": 2}, "expert_parallel 2 does not divide num_experts 1; 1 does"),
        ({"pipeline_parallel": 64}, "pipeline_parallel 64 exceeds num_hidden_layers 40"),
    ],
)
def test_a_degree_that_the_model_cannot_be_divided_by(constraints: dict[str, Any], words: str) -> None:
    with pytest.raises(BrokenRule) as told:
        resolve(asked(16, "llama-2-13b", constraints=constraints))
    assert str(told.value) == f"constraints.{words}"


def test_a_degree_that_divides_among_some_that_do_not_is_no_contradiction() -> None:
    kept = resolve(asked(16, "llama-2-13b", constraints={"tensor_parallel": [8, 16]})).constraints
    assert kept.domain("tensor_parallel").values == (8, 16)


def test_the_command_says_it_before_it_plans(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--model", "llama-2-13b", "--gpus", "16", "--set", "tensor_parallel=16"]
    assert main([*FLAGS, *flags]) == 2
    told = capsys.readouterr()
    assert "tensor_parallel 16 does not divide num_attention_heads 40; 8 does" in told.err
    assert told.out == ""


def test_more_ranks_than_sequences_is_said_with_what_works() -> None:
    with pytest.raises(BrokenRule, match="global_batch_size 64 is less than 125, the fewest data-parallel") as told:
        resolve(asked(800_000))
    assert "800000 GPUs" in str(told.value)
    assert str(told.value).endswith("take fewer GPUs, such as 512 or a batch of at least 125")
    assert resolve(asked(512)).cluster.gpus == 512
    larger = asked(800_000).model_dump() | {"training": {"sequence_length": 4096, "global_batch_size": 125}}
    assert resolve(PlanRequest.read(larger)).training.batch_range.max == 125


def test_an_answer_that_may_use_fewer_devices_is_not_refused() -> None:
    assert resolve(asked(800_000, objective="gpus")).objective == ("gpus",)
    assert resolve(asked(24, constraints={"max_gpus": 16})).cluster.gpus == 24
