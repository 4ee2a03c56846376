"""DeepSpeed's own configuration classes read what we export, and understand it as it was meant."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from planner.exporters import render
from planner.plan import Plan
from tests.unit.planner.plans import configuration, pipeline, plan

deepspeed = pytest.importorskip("deepspeed")

pytestmark = pytest.mark.torch


class Grid:
    """The model-parallel unit that a PipelineModule brings along: only its data-parallel ranks matter here."""

    def __init__(self, data_parallel: int) -> None:
        self.data_parallel = data_parallel

    def get_data_parallel_world_size(self) -> int:
        return self.data_parallel


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Callable[[Plan], Any]:
    """Read the export of a plan as a process of a world of its size would."""
    from deepspeed.runtime import config as config_module

    def as_a_rank(made: Plan) -> Any:
        c = made.configuration
        assert c is not None
        monkeypatch.setattr(config_module.dist, "get_rank", lambda *_: 0)
        monkeypatch.setattr(config_module.dist, "get_world_size", lambda *_: c.world_size)
        texts = {artifact.path: artifact.text for artifact in render(made, "deepspeed")}
        grid = Grid(c.data_parallel) if c.pipeline_parallel > 1 else None
        return config_module.DeepSpeedConfig(json.loads(texts["ds_config.json"]), mpu=grid)

    return as_a_rank


def stages(**counts: int) -> list[dict[str, Any]]:
    return [{"layers": 32, "recompute": {"none": 32}, **counts}]


CASES: dict[str, dict[str, Any]] = {
    "zero0": {"zero_stage": 0},
    "zero1": {"zero_stage": 1},
    "zero2": {"zero_stage": 2},
    "zero3": {"zero_stage": 3},
    "fp16": {"precision": "fp16"},
    "fp32": {"precision": "fp32"},
    "offload": {"zero_stage": 2, "stages": stages(optimizer_layers_offloaded=32)},
    "part offload": {"zero_stage": 3, "stages": stages(optimizer_layers_offloaded=8)},
    "parameters": {"zero_stage": 3, "parameter_offload": True, "stages": stages(optimizer_layers_offloaded=32)},
    "no overlap": {"communication_overlap": False},
    "tensor parallel": {"tensor_parallel": 2, "data_parallel": 4, "gradient_accumulation_steps": 16},
    "lion": {"optimizer": "lion"},
    "sgd": {"optimizer": "sgd"},
    "8-bit": {"optimizer": "adamw-8bit"},
    "int8": {"zero_stage": 3, "gradient_compression": "int8"},
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_deepspeed_reads_the_export(name: str, read: Callable[[Plan], Any]) -> None:
    c = configuration(**CASES[name])
    found = read(plan(c))
    assert found.train_micro_batch_size_per_gpu == c.micro_batch_size
    assert found.gradient_accumulation_steps == c.gradient_accumulation_steps
    # Under tensor parallelism DeepSpeed counts every rank of the world: it is left to derive its own number.
    assert found.train_batch_size == c.global_batch_size * c.tensor_parallel
    assert int(found.zero_config.stage) == c.zero_stage
    assert found.bfloat16_config.enabled == (c.precision == "bf16")
    assert found.float16_config.enabled == (c.precision == "fp16")
    if c.zero_stage:
        assert found.zero_config.overlap_comm == c.communication_overlap
    if c.tensor_parallel > 1:
        assert found.tensor_parallel_config.autotp_size == c.tensor_parallel
    offloaded = sum(stage.optimizer_layers_offloaded for stage in c.stages)
    assert (found.zero_config.offload_optimizer is not None) == (offloaded > 0)
    if offloaded:
        assert found.zero_config.offload_optimizer.ratio == offloaded / 32
    assert (found.zero_config.offload_param is not None) == c.parameter_offload
    assert found.zero_config.zero_quantized_gradients == (c.gradient_compression == "int8")


def test_deepspeed_reads_a_pipeline(read: Callable[[Plan], Any]) -> None:
    found = read(plan(pipeline(4)))
    assert found.pipeline["stages"] == 4
    assert found.train_batch_size == 2 * 8 * 2


@pytest.mark.parametrize("name", ["zero0", "zero1", "zero2", "zero3", "8-bit", "sgd"])
def test_deepspeed_would_build_or_take_the_optimizer(name: str, read: Callable[[Plan], Any]) -> None:
    c = configuration(**CASES[name])
    found = read(plan(c))
    if c.optimizer == "adamw-8bit":
        assert found.optimizer_name is None
    else:
        assert found.optimizer_name.lower() == c.optimizer
    known = c.optimizer in ("adamw", "lion", "muon")
    assert found.zero_allow_untested_optimizer == (not known and c.zero_stage > 0)
