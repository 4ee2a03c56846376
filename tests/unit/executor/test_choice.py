"""The plan's strategy picks the wrapper; what the bundled back ends do not train is refused by name."""

from typing import Any

import pytest

from executor.backends.choice import check_trained, described, wrapper
from executor.backends.pipeline import chunks
from executor.backends.trainer import data_rank
from executor.errors import PlanRefused
from tests.unit.executor.plans import configuration

FSDP: dict[str, Any] = {"backend": {"name": "fsdp"}, "zero_stage": 3}
STAGES = [{"layers": 2, "recompute": {"none": 2}}] * 2


@pytest.mark.parametrize(
    ("changes", "expected", "says"),
    [
        ({}, "deepspeed", ("ZeRO stage 2 over 2 processes",)),
        (
            {"zero_stage": 1, "pipeline_parallel": 2, "stages": STAGES},
            "deepspeed_pipeline",
            ("ZeRO stage 1 over 2 processes", "PipelineModule: 2 stages over 2 processes"),
        ),
        ({"backend": {"name": "ddp"}}, "ddp", ("DistributedDataParallel over 2 processes",)),
        (
            {**FSDP, "tensor_parallel": 2, "sequence_parallel": True},
            "fsdp",
            (
                "parallelize_module (DTensor) over 2 processes, sequence parallel",
                "fully_shard over 2 processes, weights gathered again in backward",
            ),
        ),
        (
            {**FSDP, "zero_stage": 2, "pipeline_parallel": 2, "stages": STAGES, "gradient_accumulation_steps": 2},
            "pipeline",
            (
                "fully_shard over 2 processes, weights kept gathered until backward",
                "Schedule1F1B: 2 stages over 2 processes",
            ),
        ),
    ],
)
def test_the_strategy_picks_the_wrapper(changes: dict[str, Any], expected: str, says: tuple[str, ...]) -> None:
    assert wrapper(configuration(**changes)) == expected
    assert described(configuration(**changes)) == says


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"context_parallel": 2}, "context_parallel 2"),
        ({**FSDP, "optimizer": "lion"}, "optimizer lion"),
        ({"backend": {"name": "ddp"}, "gradient_compression": "one-bit"}, "gradient_compression one-bit"),
        (
            {"pipeline_parallel": 2, "stages": [STAGES[0], {"layers": 1, "recompute": {"none": 1}}]},
            "different stages",
        ),
    ],
)
def test_what_is_not_trained_is_refused_by_name(changes: dict[str, Any], names: str) -> None:
    with pytest.raises(PlanRefused, match=names):
        check_trained(configuration(**changes))


def test_what_is_trained_passes() -> None:
    check_trained(configuration())
    check_trained(configuration(**{**FSDP, "precision": "fp32", "attention": "eager"}))


def test_ranks_of_a_tensor_parallel_group_and_a_pipeline_share_their_data() -> None:
    spread = configuration(**{**FSDP, "tensor_parallel": 2, "pipeline_parallel": 2, "stages": STAGES})
    assert [data_rank(spread, rank) for rank in range(8)] == [0, 0, 1, 1, 0, 0, 1, 1]


def test_virtual_stages_take_the_layers_in_turns() -> None:
    stage = {"layers": 4, "recompute": {"full": 3, "none": 1}}
    piped = configuration(**{**FSDP, "pipeline_parallel": 2, "virtual_pipeline_stages": 2, "stages": [stage] * 2})
    assert chunks(piped) == [(0, 2, 2), (2, 4, 2), (4, 6, 1), (6, 8, 1)]
