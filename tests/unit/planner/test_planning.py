"""Plans and estimates: reproducible, consistent with themselves, and honest about what does not fit."""

from typing import Any

import pytest

from cost_models.errors import BrokenRule, MissingKey, SpecError
from planner.plan import Plan
from planner.planning import estimate, plan
from planner.request import PlanRequest
from tests.unit.planner.requests import GOOD, SMALL, changed


@pytest.fixture(scope="module")
def small() -> Plan:
    return plan(PlanRequest.read(SMALL))


def estimated(**configuration: Any) -> Plan:
    return estimate(PlanRequest.read(changed("configuration", configuration) | {"backend": "any"}))


def test_a_plan_is_proven_and_fits(small: Plan) -> None:
    assert small.status == "optimal"
    assert small.optimality is not None
    assert small.optimality.proven
    assert small.optimality.value == small.optimality.bound
    assert small.prediction is not None
    assert small.prediction.memory.verdict == "fits"
    assert small.prediction.memory.oom_probability <= 0.01
    assert small.prediction.time.step_seconds == pytest.approx(small.optimality.value, rel=1e-4)


def test_the_same_request_gives_the_same_plan_byte_for_byte(small: Plan) -> None:
    again = plan(PlanRequest.read(SMALL))
    assert again.reproducible_json() == small.reproducible_json()
    assert again.envelope.id != small.envelope.id


def test_a_plan_survives_json(small: Plan) -> None:
    again = Plan.from_json(small.to_json())
    assert again == small
    assert again.to_json() == small.to_json()


def test_a_plan_says_what_it_is_for(small: Plan) -> None:
    assert small.request.model.hidden_size == SMALL["model"]["architecture"]["hidden_size"]
    assert small.request.cluster.pools[0].device.name == "a100-sxm-40gb"
    assert small.request.cluster.pools[0].gpus_per_node == 2
    assert small.request.training.precision == "bf16", "what the request left open is written out"
    assert small.request.backends == ("deepspeed",)


def test_an_infeasible_answer_says_what_was_asked() -> None:
    request = changed("training.sequence_length", 2**22, SMALL) | {"constraints": {"offload": "forbid"}}
    found = plan(PlanRequest.read(request))
    assert found.status == "infeasible"
    assert found.request.training.sequence_length == 2**22
    assert not found.request.constraints.domain("optimizer_offload").allows(True)
    assert Plan.from_json(found.to_json()) == found


def test_terms_sum_to_their_totals(small: Plan) -> None:
    assert small.prediction is not None
    memory, time = small.prediction.memory, small.prediction.time
    assert sum(memory.breakdown_bytes.values()) == pytest.approx(memory.allocated.median_bytes, abs=32)
    assert sum(time.breakdown_seconds.values()) == pytest.approx(time.step_seconds, rel=1e-6)
    stage = memory.per_stage[memory.binding.stage]
    assert stage.instants_bytes[memory.binding.instant] == memory.breakdown_bytes
    assert max(memory.phases.values()) == memory.allocated.median_bytes


def test_intervals_hold_their_median(small: Plan) -> None:
    assert small.prediction is not None
    memory, time = small.prediction.memory, small.prediction.time
    for quantity in (memory.allocated, memory.reserved, memory.device):
        assert quantity.lower_bytes <= quantity.median_bytes <= quantity.upper_bytes
    inner, outer = time.interval_seconds["80"], time.interval_seconds["90"]
    assert outer[0] <= inner[0] <= time.step_seconds <= inner[1] <= outer[1]
    assert memory.conservative_bytes == memory.device.upper_bytes


def test_choices_are_explained_by_their_neighbours(small: Plan) -> None:
    assert small.configuration is not None
    subjects = {entry.subject for entry in small.explanation if entry.kind == "choice"}
    assert {"recompute", "zero_stage", "micro_batch_size"} <= subjects
    better = [
        entry
        for entry in small.explanation
        if entry.verdict == "fits" and entry.step_delta_seconds is not None and entry.step_delta_seconds < -1e-6
    ]
    assert not better, "a neighbour that fits and is faster would have been the plan"


def test_a_pinned_decision_is_obeyed() -> None:
    pinned = plan(PlanRequest.read(changed("constraints", {"zero_stage": 3, "recompute": "full"}, SMALL)))
    assert pinned.configuration is not None
    assert pinned.configuration.zero_stage == 3
    assert all(stage.recompute.full == stage.layers for stage in pinned.configuration.stages)


@pytest.mark.parametrize("mode", ["none", "selective", "full"])
def test_a_recompute_mode_that_is_forbidden_is_not_used(mode: str) -> None:
    request = changed("constraints", {"recompute": {"forbid": [mode]}}, SMALL) | {"backend": "any"}
    found = plan(PlanRequest.read(request)).configuration
    assert found is not None
    assert all(getattr(stage.recompute, mode) == 0 for stage in found.stages)


def test_an_estimate_of_the_plan_repeats_its_prediction(small: Plan) -> None:
    assert small.configuration is not None
    request = changed("configuration", small.configuration.model_dump(mode="json"), SMALL)
    again = estimate(PlanRequest.read(request))
    assert again.prediction == small.prediction
    assert again.configuration == small.configuration
    assert again.optimality is None


def test_an_estimate_derives_what_is_left_out_and_says_so() -> None:
    found = estimated(zero_stage=2, micro_batch_size=2)
    assert found.configuration is not None
    assert found.configuration.data_parallel == 8
    assert found.configuration.gradient_accumulation_steps == 8
    said = {assumption.key for assumption in found.assumptions}
    assert {"configuration.data_parallel", "configuration.gradient_accumulation_steps", "configuration.backend"} <= said


def test_an_estimate_says_that_it_assumes_no_dropout_unless_one_is_stated() -> None:
    assumed = {a.key: a.value for a in estimated(zero_stage=2, micro_batch_size=2).assumptions}
    assert assumed["training.dropout"] == 0.0
    stated = changed("training", {**SMALL["training"], "dropout": 0.1}, SMALL)
    request = changed("configuration", {"zero_stage": 2, "micro_batch_size": 2}, stated)
    found = estimate(PlanRequest.read(request))
    assert "training.dropout" not in {a.key for a in found.assumptions}


def test_what_does_not_fit_says_by_how_much() -> None:
    found = estimated(zero_stage=0, micro_batch_size=16)
    assert found.status == "infeasible"
    assert found.prediction is not None
    assert found.prediction.memory.verdict == "does_not_fit"
    assert found.prediction.memory.oom_probability > 0.5
    assert found.infeasibility is not None
    (conflict,) = found.infeasibility.conflict
    assert conflict.resource == "gpu_memory"
    assert conflict.shortfall_bytes == found.prediction.memory.conservative_bytes - found.prediction.memory.usable_bytes


@pytest.mark.parametrize(
    ("configuration", "message"),
    [
        ({"micro_batch_size": 3}, "micro_batch_size 3 x gradient_accumulation_steps 5 x data_parallel 8 is 120"),
        ({"data_parallel": 16}, "is 16 but the cluster has 8 GPUs"),
        ({"tensor_parallel": 3}, "is 3, which does not divide the 8 GPUs"),
        ({"pipeline_parallel": 2, "zero_stage": 2}, "zero_stage 2 exceeds 1 with pipeline_parallel 2"),
        ({"layers": [16, 15]}, "the stages hold 31 layers but num_hidden_layers is 32"),
        ({"layers": [16, 16], "pipeline_parallel": 4}, "layers lists 2 stages but pipeline_parallel is 4"),
        ({"context_parallel": 2}, "context_parallel 2 must be 1"),
        (
            {"backend": "megatron", "stages": [{"layers": 32, "recompute": {"full": 32}}], "recompute": "full"},
            "stages say",
        ),
        ({"stages": [{"layers": 32, "recompute": {"full": 3}}]}, "recompute counts 3 layers but the stage has 32"),
    ],
)
def test_a_configuration_that_cannot_run_is_refused(configuration: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        estimated(**configuration)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_estimate_needs_a_configuration() -> None:
    with pytest.raises(MissingKey, match="request: configuration is missing"):
        estimate(PlanRequest.read(GOOD))


def test_a_back_end_outside_the_list_is_refused() -> None:
    with pytest.raises(BrokenRule, match=r"configuration\.backend is fsdp but backend allows deepspeed"):
        estimate(PlanRequest.read(changed("configuration", {"backend": "fsdp"}) | {"backend": "deepspeed"}))


def test_progress_is_told() -> None:
    lines: list[str] = []
    plan(PlanRequest.read(SMALL), report=lines.append)
    assert lines


@pytest.mark.parametrize(("zero_stage", "connections"), [(1, "1"), (2, None)])
def test_megatron_fsdp_is_not_told_to_use_one_connection(zero_stage: int, connections: str | None) -> None:
    found = estimated(backend="megatron", tensor_parallel=2, sequence_parallel=True, zero_stage=zero_stage)
    assert found.recommendations is not None
    assert found.recommendations.environment.get("CUDA_DEVICE_MAX_CONNECTIONS") == connections
    assert any("Megatron-FSDP" in warning for warning in found.warnings) is (zero_stage == 2)


def test_pins_that_contradict_each_other_are_told_with_the_rule_and_a_way_out() -> None:
    pins = {"zero_stage": 3, "pipeline_parallel": 2}
    found = plan(PlanRequest.read(changed("constraints", pins, SMALL)))
    assert found.infeasibility is not None
    told = [c.text for c in found.infeasibility.conflict]
    assert told[:2] == ["pipeline_parallel: 2", "zero_stage: 3"]
    assert "DeepSpeed's pipeline engine refuses ZeRO-2 and ZeRO-3" in told[2]
    changes = {r.change: r.verified for r in found.infeasibility.relaxations}
    assert list(changes)[:2] == ["without pipeline_parallel: 2", "without zero_stage: 3"]
    assert changes["without pipeline_parallel: 2"]
    assert set(changes) <= {"without pipeline_parallel: 2", "without zero_stage: 3", "backend: any"}


@pytest.mark.parametrize(
    ("device", "precision"),
    [("b200", "nvfp4"), ("h100-sxm-80gb", "fp8"), ("v100-sxm-16gb", "fp16"), ("a800-sxm-80gb", "fp32")],
)
def test_every_precision_is_planned_with_its_share_of_the_peak(device: str, precision: str) -> None:
    pools = [{"device": device, "nodes": 1, "gpus_per_node": 2}]
    asked = changed("cluster.pools", pools, changed("training.precision", precision, SMALL)) | {"backend": "any"}
    found = plan(PlanRequest.read(asked))
    assert found.configuration is not None
    assert found.configuration.precision == precision
    assert found.prediction is not None
    assert 0 < found.prediction.time.mfu < 1
