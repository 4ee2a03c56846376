"""Plans over several pools: what the answer says, what is refused, what the faces print."""

import json
from pathlib import Path
from typing import Any

import pytest

from cost_models import catalog
from cost_models.errors import BrokenRule
from cost_models.ledger import estimate as ledger
from cost_models.placement import in_use
from planner.cli import main
from planner.errors import SeveralPools
from planner.exporters import render
from planner.frontier import frontier, ladder
from planner.legality import violations
from planner.plan import Plan
from planner.planning import estimate, plan
from planner.request import PlanRequest

Captured = pytest.CaptureFixture[str]
H100 = {"device": "h100-sxm-80gb", "nodes": 1, "gpus_per_node": 2, "price_per_gpu_hour": 4.0}
A100 = {"device": "a100-sxm-80gb", "nodes": 1, "gpus_per_node": 2, "price_per_gpu_hour": 1.0}
T4 = {"device": "t4", "nodes": 1, "gpus_per_node": 2, "price_per_gpu_hour": 0.3}


def request(*pools: dict[str, Any], **changes: Any) -> PlanRequest:
    model = {
        "hidden_size": 4096, "num_hidden_layers": 16, "num_attention_heads": 32, "intermediate_size": 11008,
        "vocab_size": 32000,
    }  # fmt: skip
    return PlanRequest.read(
        {
            "model": {"architecture": model},
            "cluster": {"pools": list(pools)},
            "training": {"sequence_length": 4096, "global_batch_size": 64},
            "backend": "megatron",
            **changes,
        }
    )


@pytest.fixture(scope="module")
def both() -> Plan:
    return plan(request(H100, A100))


def test_both_pools_are_faster_than_either(both: Plan) -> None:
    assert both.status == "optimal"
    assert both.configuration is not None
    assert both.prediction is not None
    assert set(in_use(both.request.job, both.configuration)) == {0, 1}
    for pool in (H100, A100):
        alone = plan(request(pool)).prediction
        assert alone is not None
        assert both.prediction.time.step_seconds < alone.time.step_seconds


def test_stages_of_the_faster_pool_hold_more_layers(both: Plan) -> None:
    assert both.configuration is not None
    layers: dict[int, list[int]] = {0: [], 1: []}
    for stage in both.configuration.stages:
        layers[stage.pool].append(stage.layers)
    assert min(layers[0]) > max(layers[1])


def test_a_pool_that_only_slows_down_is_left_idle_and_said_so() -> None:
    found = plan(request(H100, T4, training={"sequence_length": 4096, "global_batch_size": 64, "precision": "fp16"}))
    assert found.configuration is not None
    assert in_use(found.request.job, found.configuration) == {0: 2}
    idle = "2 of 4 GPUs stay idle: pool 0 (h100-sxm-80gb) gives 2 of 2, pool 1 (t4) gives 0 of 2"
    assert idle in found.warnings
    assert found.pool.device.name == "h100-sxm-80gb"
    assert render(found, "megatron")


def test_the_cheapest_plan_may_leave_the_dear_pool_idle() -> None:
    found = plan(request(H100, A100, objective="cost"))
    assert found.configuration is not None
    assert set(in_use(found.request.job, found.configuration)) == {1}


def test_a_stated_link_between_pools_carries_their_transfers(both: Plan) -> None:
    def asked(link: Any, **changes: Any) -> PlanRequest:
        whole = request(H100, A100).model_dump(mode="json")
        return PlanRequest.read(whole | {"cluster": {"pools": [H100, A100], "between_pools": link}} | changes)

    assert both.configuration is not None
    stated = both.configuration.model_dump(mode="json")
    steps = []
    for link in ("400Gb/s", "10Gb/s", {"bandwidth": "10Gb/s", "shared_by_node": True, "latency_seconds": 0.001}):
        priced = estimate(asked(link, configuration=stated))
        assert priced.prediction is not None
        steps.append(priced.prediction.time.step_seconds)
    assert steps == sorted(steps)
    assert steps[0] < steps[1] < steps[2]
    slow = plan(asked("1Mb/s"))
    assert slow.configuration is not None
    assert len(set(in_use(slow.request.job, slow.configuration))) == 1, "nothing crosses such a link"


def test_three_pools_are_planned() -> None:
    l40s = {"device": "l40s", "nodes": 1, "gpus_per_node": 2, "price_per_gpu_hour": 1.0}
    found = plan(request(H100, A100, l40s))
    assert found.status == "optimal"
    two = plan(request(H100, A100))
    assert found.optimality is not None
    assert two.optimality is not None
    assert found.optimality.value <= two.optimality.value, "a further pool may stay idle"


def test_the_plan_is_an_estimate_of_its_own_configuration(both: Plan) -> None:
    assert both.configuration is not None
    stated = both.configuration.model_dump(mode="json")
    priced = estimate(request(H100, A100, configuration=stated))
    assert priced.prediction is not None
    assert both.prediction is not None
    assert priced.prediction.time.step_seconds == both.prediction.time.step_seconds
    assert priced.prediction.memory.conservative_bytes == both.prediction.memory.conservative_bytes


def test_the_fuller_pool_is_the_one_reported(both: Plan) -> None:
    assert both.configuration is not None
    memory = ledger(both.request.job, both.configuration, catalog.calibration()).memory
    assert len(memory.other_pools) == 1
    assert memory.fullness >= memory.other_pools[0].fullness
    assert memory.binding[0] in memory.of_stages


def test_stages_that_no_pool_can_hold_are_refused(both: Plan) -> None:
    assert both.configuration is not None
    job, c = both.request.job, both.configuration
    everything = tuple(stage.model_copy(update={"pool": 1}) for stage in c.stages)
    broken = violations(job, c.model_copy(update={"stages": everything}))
    assert any("the stages in pool 1 take 4 GPUs but it has 2" in text for text in broken)
    beyond = tuple(stage.model_copy(update={"pool": 2}) for stage in c.stages)
    assert "stages live in pool 2 but cluster.pools lists 2, from 0" in violations(
        job, c.model_copy(update={"stages": beyond})
    )


def test_a_plan_over_pools_is_not_exported(both: Plan) -> None:
    with pytest.raises(SeveralPools, match=r"pool 0 \(h100-sxm-80gb\) and pool 1 \(a100-sxm-80gb\)"):
        render(both, "megatron")


def test_frontiers_over_pools() -> None:
    asked = request(H100, A100)
    with pytest.raises(BrokenRule, match="axes time,memory is for one pool"):
        frontier(asked)
    found = frontier(asked, ("time", "cost"), points=3)
    costs = [point.cost_per_step or 0.0 for point in found.points]
    assert costs == sorted(costs, reverse=True)
    rungs = ladder(asked, 2, 4).rungs
    assert [rung.gpus for rung in rungs] == [2, 3, 4]
    assert all(rung.point is not None for rung in rungs if rung.gpus in {2, 4})


def test_infeasible_over_pools_is_an_answer(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    tiny = {"device": "t4", "nodes": 1, "gpus_per_node": 1}
    path = tmp_path / "job.json"
    data = request(tiny, {**tiny, "device": "rtx-4090"}, constraints={"offload": "forbid"}).model_dump(mode="json")
    path.write_text(json.dumps(data))
    assert main(["plan", "-f", str(path)]) == 3
    told = capsys.readouterr().out
    assert "of usable memory on each t4 and" in told, "the conflict names the memory of every pool"
    assert "more usable memory per GPU in every pool" in told


def test_the_table_of_stages_names_their_pools(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    path = tmp_path / "job.json"
    path.write_text(request(H100, A100).model_dump_json())
    assert main(["plan", "-f", str(path)]) == 0
    assert "1 a100-sxm-80gb" in capsys.readouterr().out
