from itertools import pairwise
from typing import Any

import pytest

from cost_models import catalog
from cost_models.errors import BrokenRule
from cost_models.memory.allocator import exponent, quantile
from cost_models.parameters import total_parameters
from cost_models.units import GIB
from tests.unit.cost_models.memory.cases import SMALL, ledger, term

PSI = total_parameters(SMALL)


def stages(off: int) -> list[dict[str, Any]]:
    return [{"layers": 8, "recompute": {"none": 8}, "optimizer_layers_offloaded": off}]


def test_offloading_everything_leaves_no_states_and_no_gradients_on_the_device() -> None:
    here, there = (ledger(zero_stage=2, stages=stages(off)) for off in (0, 8))
    assert term(here, "optimizer_step", "optimizer_states") == pytest.approx(12 * PSI)
    for name in ("optimizer_states", "gradients", "step_temporaries"):
        assert term(there, "optimizer_step", name) == pytest.approx(0, abs=1)
    pinned = catalog.calibration()("host.pinned_factor")
    process = catalog.calibration()("host.process_bytes")
    assert here.host_node_bytes == pytest.approx(process + 2 * PSI)  # one rank: the copy of loading, before any state
    assert there.stages[0].host_bytes == pytest.approx(process + (8 + 8 * pinned) * PSI)


@pytest.mark.parametrize("backend", ["deepspeed", "megatron", "fsdp"])
def test_host_memory_never_falls_as_more_is_offloaded(backend: str) -> None:
    """From none on: offloading one layer must not make the copies of loading and saving vanish."""
    sizes = [ledger(backend=backend, zero_stage=3 if backend != "megatron" else 1, stages=stages(off), data_parallel=2)
             for off in range(9)]  # fmt: skip
    host = [named.host_node_bytes for named in sizes]
    assert all(after >= before for before, after in pairwise(host))
    moved = [named.stages[0].host_bytes for named in sizes]
    rises = [after - before for before, after in pairwise(moved)]
    assert all(rise > 0 for rise in rises)
    assert rises[1:] == pytest.approx([rises[1]] * 7, rel=1e-6)  # the first may take embedding and head along


def test_each_offloaded_layer_moves_its_share() -> None:
    sizes = [ledger(zero_stage=3, stages=stages(off)).stages[0] for off in (1, 2, 3, 8)]
    freed = [a.allocated("optimizer_step") - b.allocated("optimizer_step") for a, b in pairwise(sizes)]
    assert freed[0] == pytest.approx(freed[1])
    assert freed[2] == pytest.approx(5 * freed[0])
    assert sizes[1].host_bytes - sizes[0].host_bytes == pytest.approx(sizes[2].host_bytes - sizes[1].host_bytes)


def test_megatron_keeps_its_gradients_when_the_optimizer_leaves() -> None:
    named = ledger(backend="megatron", zero_stage=1, stages=stages(8))
    assert term(named, "optimizer_step", "gradients") == pytest.approx(4 * PSI)


def test_offloaded_parameters_are_on_the_host() -> None:
    named = ledger(zero_stage=3, stages=stages(8), parameter_offload=True)
    assert term(named, "optimizer_step", "weights") == 0
    without = ledger(zero_stage=3, stages=stages(8))
    assert named.stages[0].host_bytes > without.stages[0].host_bytes + 2 * PSI


def test_a_gathered_save_takes_host_memory_of_the_node() -> None:
    ddp, sharded = (ledger(backend=b) for b in ("ddp", "megatron"))
    assert sharded.host_usable_bytes - ddp.host_usable_bytes == pytest.approx(4 * PSI)


def test_node_memory_is_that_of_the_ranks_packed_on_it() -> None:
    halves = [{"layers": 4, "recompute": {"none": 4}}] * 2
    named = ledger(backend="megatron", pipeline_parallel=2, tensor_parallel=4, stages=halves)
    assert named.host_node_bytes == pytest.approx(4 * sum(stage.host_bytes for stage in named.stages))
    wide = ledger(backend="megatron", data_parallel=16, cluster={"nodes": 2})
    assert wide.host_node_bytes == pytest.approx(8 * wide.stages[0].host_bytes)


def test_one_communicator_a_process_group_and_none_alone() -> None:
    cal = catalog.calibration()
    assert ledger().communicator_bytes == 0
    pair, group = cal("communicator.pair"), cal("communicator.group")
    assert ledger(backend="megatron", tensor_parallel=2).communicator_bytes == pair
    assert ledger(backend="megatron", tensor_parallel=8).communicator_bytes == group
    assert ledger(backend="megatron", tensor_parallel=2, data_parallel=4).communicator_bytes == pair + group


def test_a_cpu_has_no_context_no_workspace_and_no_offload_memory() -> None:
    named = ledger(device="cpu", cluster={"gpus_per_node": 2, "host_memory": "16GiB"}, data_parallel=2)
    assert named.context_bytes == named.communicator_bytes == named.host_node_bytes == 0
    assert named.usable_bytes == 8 * GIB
    assert all("workspaces" not in terms for terms in named.stages[0].instants.values())


def test_the_risk_moves_the_margin_from_the_median_to_the_tail() -> None:
    assert exponent(0.5) == 0
    assert exponent(0.01) == pytest.approx(1)
    assert quantile(1.1, 1.24, 0) == 1.1
    assert quantile(1.1, 1.24, 1) == 1.24
    even = ledger(oom_risk=0.5)
    assert even.allocated_quantile == 1
    assert even.fragmentation_quantile == even.fragmentation_median
    assert even.conservative_bytes == pytest.approx(even.device_bytes)


@pytest.mark.parametrize("risk", [0.0, 1.0, -0.1, 2.0])
def test_a_risk_outside_zero_and_one_is_refused(risk: float) -> None:
    with pytest.raises(BrokenRule, match=f"oom_risk {risk} must lie strictly between 0 and 1"):
        ledger(oom_risk=risk)


def test_regimes_differ_by_ledger_attention_card_and_pipeline() -> None:
    def factor(**options: Any) -> float:
        return ledger(oom_risk=0.01, **options).fragmentation_quantile

    shipped = catalog.calibration()
    assert factor() == 1.10
    assert factor(device="t4") == shipped("fragmentation_q99.eager_small_card") > factor()
    assert factor(device="t4", attention="eager") == shipped("fragmentation_q99.eager_materialised")
    assert factor(device="t4", attention="eager") > factor(device="t4")
    assert factor(backend="megatron") == 1.07
    assert factor(backend="megatron", context_parallel=2) == 1.09
    loose = ledger(catalog.model("mixtral-8x7b"), backend="megatron", oom_risk=0.01, training={"expert_imbalance": 1.2},
                   stages=[{"layers": 32, "recompute": {"none": 32}}])  # fmt: skip
    assert loose.allocated_quantile == 1.10
