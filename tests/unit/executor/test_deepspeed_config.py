"""What a CPU node's run changes of the exported configuration."""

from typing import Any

import pytest

from executor.deepspeed_config import adapted_to_cpu, exported
from executor.errors import PlanRefused
from tests.unit.executor.plans import configuration, feasible


def test_the_exported_configuration_is_the_planners() -> None:
    config = exported(feasible(configuration=configuration(micro_batch_size=3)))
    assert config["zero_optimization"]["stage"] == 2
    assert (config["train_micro_batch_size_per_gpu"], config["train_batch_size"]) == (3, 6)


def test_adamw_runs_without_a_compiled_kernel_and_says_so() -> None:
    config: dict[str, Any] = {"optimizer": {"type": "AdamW", "params": {"lr": 1}}, "zero_optimization": {"stage": 2}}
    result, changes = adapted_to_cpu(config)
    assert result["optimizer"]["params"] == {"lr": 1, "torch_adam": True, "fused": True}
    assert len(changes) == 1
    assert "torch_adam" not in config["optimizer"]["params"]


def test_offload_loses_its_pinned_memory() -> None:
    offload = {"device": "cpu", "pin_memory": True}
    result, changes = adapted_to_cpu({"zero_optimization": {"stage": 3, "offload_optimizer": offload}})
    assert result["zero_optimization"]["offload_optimizer"] == {"device": "cpu", "pin_memory": False}
    assert len(changes) == 1


def test_fp16_is_refused() -> None:
    with pytest.raises(PlanRefused, match="fp16"):
        adapted_to_cpu({"fp16": {"enabled": True}})


def test_what_has_gpu_kernels_alone_is_refused_on_a_cpu() -> None:
    with pytest.raises(PlanRefused, match="ZeRO\\+\\+"):
        adapted_to_cpu({"zero_optimization": {"stage": 3, "zero_quantized_gradients": True}})
