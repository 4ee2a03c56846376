"""What a CPU node's run changes of the exported configuration."""

from typing import Any

import pytest

from executor.deepspeed_config import adapted_to_cpu, exported, with_counted_buckets
from executor.errors import PlanRefused
from planner.plan import Plan, StagePrediction
from tests.unit.executor.plans import configuration, feasible


def test_the_exported_configuration_is_the_planners() -> None:
    config = exported(feasible(configuration=configuration(micro_batch_size=3)))
    assert config["zero_optimization"]["stage"] == 2
    assert (config["train_micro_batch_size_per_gpu"], config["train_batch_size"]) == (3, 6)


def counting(buckets: int) -> Plan:
    plan = feasible()
    assert plan.prediction is not None
    stage = StagePrediction(
        stage=0,
        instant="loss",
        allocated_bytes=buckets,
        instants_bytes={"loss": {"weights": 1, "buckets": buckets}, "save": {"weights": 1}},
        host_bytes=0,
    )
    memory = plan.prediction.memory.model_copy(update={"per_stage": (stage,)})
    return feasible(prediction=plan.prediction.model_copy(update={"memory": memory}))


def test_the_bucket_is_as_large_as_the_ledger_counted() -> None:
    config = {"zero_optimization": {"stage": 2, "reduce_bucket_size": 500_000_000}}
    result, changes = with_counted_buckets(config, counting(2 * 2 * 7_000_000))  # two copies in bf16
    assert repr(result["zero_optimization"]["reduce_bucket_size"]) == "7000000"
    assert len(changes) == 1
    assert config["zero_optimization"]["reduce_bucket_size"] == 500_000_000


@pytest.mark.parametrize("buckets", [0, 2 * 2 * 500_000_000])
def test_a_bucket_that_is_right_or_not_priced_stays(buckets: int) -> None:
    config = {"zero_optimization": {"stage": 2, "reduce_bucket_size": 500_000_000}}
    assert with_counted_buckets(config, counting(buckets)) == (config, ())


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
