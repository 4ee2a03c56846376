"""A wrong request gets one line that names the field and both sides of the rule."""

from pathlib import Path
from typing import Any

import pytest

from cost_models.catalog import calibration
from cost_models.errors import SpecError
from planner.request import PlanRequest, inline_files
from planner.resolve import resolve
from tests.unit.planner.requests import ABSENT, GOOD, changed

WRONG = [
    ("foo", 1, "foo: unknown key; keys here are model, cluster, training"),
    ("training.foo", 1, "training.foo: unknown key; keys here are method, "),
    ("constraints.tensor_paralel", 2, "constraints.tensor_paralel: unknown key; did you mean tensor_parallel?"),
    ("training.sequence_length", -1, "training.sequence_length: Input should be greater than 0; got -1"),
    ("training.sequence_length", float("nan"), "training.sequence_length: Input should be a finite number; got nan"),
    ("constraints.oom_risk", float("nan"), "constraints.oom_risk: Input should be a finite number; got nan"),
    ("constraints.oom_risk", 0.7, "constraints.oom_risk: Input should be less than 0.5; got 0.7"),
    ("cluster.pools.0.nodes", 0, "cluster.pools.0.nodes: Input should be greater than 0; got 0"),
    ("cluster.pools.0.gpus_per_node", 0, "cluster.pools.0.gpus_per_node: Input should be greater than 0; got 0"),
    ("cluster.pools.0.host_memory", "-5GiB", "cluster.pools.0.host_memory: memory size '-5GiB' is not a number"),
    ("cluster.pools.0.host_memory", -5, "cluster.pools.0.host_memory: Input should be greater than or equal to 0"),
    ("cluster.pools.0.host_memory", "5 foo", "unknown unit 'foo'; known are B, kB"),
    ("cluster.pools.0.usable_memory", 0, "cluster.pools.0.usable_memory is 0 but must be at least 1 byte"),
    ("cluster.pools.0.device", "zzz", "unknown device 'zzz'"),
    ("cluster.pools.0.device", "h100-smx-80gb", "did you mean h100-sxm-80gb"),
    ("cluster.pools.0.intra_node_link", "nvlunk", "cluster.pools.0: unknown link 'nvlunk'; did you mean nvlink"),
    ("cluster.pools", [], "cluster.pools: Tuple should have at least 1 item"),
    ("training.global_batch_size", 0, "training.global_batch_size: Input should be greater than 0; got 0"),
    ("training.global_batch_size", {"min": 5, "max": 2}, "training.global_batch_size: min 5 exceeds max 2"),
    ("training.global_batch_size", 10**12, "exceeds 16777216, the largest that is planned"),
    ("training.precision", "fp12", "Input should be 'bf16', 'fp16', 'fp32', 'fp8' or 'nvfp4'; got 'fp12'"),
    ("training.precision", "fp8", "training.precision is fp8 but a100-sxm-80gb computes in bf16, fp16, fp32"),
    ("training.lora", {"rank": 3}, "lora is given but method is full"),
    ("constraints.tensor_parallel", "abc", "constraints.tensor_parallel: 'abc' is not an integer, a list of integers"),
    ("constraints.tensor_parallel", [], "constraints.tensor_parallel: an empty list allows nothing"),
    ("constraints.tensor_parallel", {"least": 1}, "unknown key 'least'; a domain has values, min, max, forbid"),
    ("constraints.tensor_parallel", {"min": 4, "max": 2}, "constraints.tensor_parallel: min 4 exceeds max 2"),
    ("constraints.zero_stage", 4, "constraints.zero_stage: 4 must be one of 0, 1, 2, 3"),
    ("constraints.recompute", "half", "constraints.recompute: 'half' is not one of none, selective, full"),
    ("constraints.sequence_parallel", 3, "constraints.sequence_parallel: 3 is not true or false"),
    ("constraints.min_gpus", 9, "constraints.min_gpus 9 exceeds the 8 GPUs of the cluster"),
    (
        "constraints",
        {"offload": "forbid", "optimizer_offload": True},
        "offload is forbid but optimizer_offload is True",
    ),
    ("constraints", {"min_gpus": 4, "max_gpus": 2}, "min_gpus 4 exceeds max_gpus 2"),
    ("model", {}, "model: nothing given; give exactly one of preset, config, hub, architecture"),
    ("model.config", {"a": 1}, "model: preset and config given; give exactly one"),
    ("model", {"preset": "llama-9"}, "unknown model 'llama-9'; did you mean"),
    ("model", {"config": {"hello": 1}}, "model.config: num_attention_heads is missing"),
    ("model", {"config": {"model_type": "bert", "hidden_size": 8}}, "only decoder-only transformers are planned"),
    ("model", {"config": "./config.json"}, "is a path, which only the command line reads"),
    ("model", {"architecture": {"hidden_size": 8}}, "model.architecture: num_hidden_layers is missing"),
    ("model", None, "model: Input should be a valid dictionary"),
    ("cluster", ABSENT, "cluster: Field required"),
    ("backend", "foo", "backend: Input should be 'deepspeed', 'megatron', 'fsdp', 'ddp' or 'megatron-deepspeed'"),
    ("backend", [], "backend [] must list each name once"),
    (
        "objective",
        "speed",
        "objective: Input should be 'throughput', 'memory', 'gpus', 'cost', 'cost_per_token' or 'energy'; got 'speed'",
    ),
    ("objective", "cost", "objective is cost but cluster.pools.0.price_per_gpu_hour is missing"),
]


@pytest.mark.parametrize(("path", "value", "message"), WRONG)
def test_a_wrong_request_gets_one_line(path: str, value: Any, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        resolve(PlanRequest.read(changed(path, value)))
    text = str(caught.value)
    assert message in text
    assert "\n" not in text


ARCHITECTURE = {"hidden_size": 96, "num_hidden_layers": 2, "num_attention_heads": 7, "vocab_size": 9}


def test_heads_that_do_not_divide_are_named() -> None:
    request = changed("model", {"architecture": ARCHITECTURE | {"intermediate_size": 8}})
    with pytest.raises(SpecError, match="num_attention_heads 7 does not divide hidden_size 96"):
        resolve(PlanRequest.read(request))


def test_key_value_heads_that_do_not_divide_are_named() -> None:
    numbers = ARCHITECTURE | {"num_attention_heads": 8, "intermediate_size": 8, "num_key_value_heads": 3}
    with pytest.raises(SpecError, match="num_key_value_heads 3 does not divide num_attention_heads 8"):
        resolve(PlanRequest.read(changed("model", {"architecture": numbers})))


def test_a_model_may_be_a_name_alone() -> None:
    named = PlanRequest.read(changed("model", "llama-2-7b"))
    assert named.model == PlanRequest.read(GOOD).model
    assert PlanRequest.read(changed("model", "meta-llama/Llama-2-7b-hf")).model.hub == "meta-llama/Llama-2-7b-hf"


@pytest.mark.parametrize(
    ("constraints", "batch", "message"),
    [
        ({"data_parallel": 8}, 7, "for any data_parallel of 8 on 8 GPUs; the nearest that is: 8"),
        ({"micro_batch_size": 3}, 128, "training.global_batch_size 128 is not micro_batch_size x"),
        ({"gradient_accumulation_steps": 64, "data_parallel": 4}, 128, "the nearest that is: 256"),
        ({"tensor_parallel": 3}, 128, "tensor_parallel 3 does not divide num_attention_heads 32; 2 does"),
        (
            {"tensor_parallel": {"min": 3, "max": 3}},
            128,
            "no tensor_parallel x context_parallel x pipeline_parallel x data_parallel makes 8",
        ),
    ],
)
def test_a_batch_that_cannot_be_split_is_refused(constraints: dict[str, Any], batch: int, message: str) -> None:
    request = changed("constraints", constraints)
    request["training"] = request["training"] | {"global_batch_size": batch}
    with pytest.raises(SpecError) as caught:
        resolve(PlanRequest.read(request))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("path", "one", "other"),
    [
        ("constraints.tensor_parallel", 2, [2]),
        ("constraints.tensor_parallel", [4, 2], {"values": [2, 4]}),
        ("constraints.tensor_parallel", "forbid", 1),
        ("constraints.attention", ["sdpa", "flash"], ["flash", "sdpa"]),
        ("constraints.gradient_compression", "lossless", "none"),
        ("cluster.pools.0.host_memory", "1TiB", 2**40),
        ("model.preset", "llama2-7b", "llama-2-7b"),
        ("cluster.pools.0.device", "A100-SXM4-80GB", "a100-sxm-80gb"),
        ("objective", "throughput", ["throughput"]),
        ("training.global_batch_size", 128, 128),
    ],
)
def test_the_same_question_in_other_words_has_the_same_hash(path: str, one: Any, other: Any) -> None:
    hashes = {resolve(PlanRequest.read(changed(path, value))).request_hash(calibration()) for value in (one, other)}
    assert len(hashes) == 1


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("training.sequence_length", 2048),
        ("constraints.oom_risk", 0.02),
        ("constraints.max_gpus", 8),
        ("cluster.pools.0.host_memory", "512GiB"),
        ("cluster.pools.0.price_per_gpu_hour", 2),
        ("backend", "fsdp"),
        ("objective", "memory"),
        ("objective_tolerance", 0.01),
        ("model.preset", "llama-3-8b"),
        ("configuration", {"zero_stage": 1}),
    ],
)
def test_another_question_has_another_hash(path: str, value: Any) -> None:
    hashes = {
        resolve(PlanRequest.read(request)).request_hash(calibration()) for request in (GOOD, changed(path, value))
    }
    assert len(hashes) == 2


def test_another_calibration_gives_another_hash() -> None:
    shipped = calibration()
    name = next(iter(shipped.factors))
    moved = shipped.scaled({name: shipped.factors[name].value * 1.01}, shipped.version)
    resolved = resolve(PlanRequest.read(GOOD))
    assert resolved.request_hash(shipped) != resolved.request_hash(moved)


def test_a_request_survives_json() -> None:
    request = changed(
        "constraints", {"tensor_parallel": [1, 2], "recompute": {"forbid": ["full"]}, "offload": "forbid"}
    )
    once = PlanRequest.read(request)
    again = PlanRequest.model_validate_json(once.model_dump_json())
    assert resolve(once).request_hash(calibration()) == resolve(again).request_hash(calibration())


def test_defaults_are_expanded_and_said() -> None:
    resolved = resolve(PlanRequest.read(GOOD))
    assert resolved.training.precision == "bf16"
    said = {assumption.key: assumption.value for assumption in resolved.assumptions}
    assert said["training.precision"] == "bf16"
    assert said["cluster.pools.0.intra_node_link"] == resolved.cluster.pools[0].intra_node_link.name


@pytest.mark.parametrize(
    ("device", "precision"), [("v100-sxm-32gb", "fp16"), ("t4", "fp16"), ("h100-sxm-80gb", "bf16")]
)
def test_precision_follows_the_device(device: str, precision: str) -> None:
    assert resolve(PlanRequest.read(changed("cluster.pools.0.device", device))).training.precision == precision


def test_a_link_given_as_a_rate_keeps_the_latency_of_the_device(tmp_path: Path) -> None:
    usual = resolve(PlanRequest.read(GOOD)).cluster.pools[0].intra_node_link
    link = (
        resolve(PlanRequest.read(changed("cluster.pools.0.intra_node_link", "100GB/s")))
        .cluster.pools[0]
        .intra_node_link
    )
    assert link.bandwidth == 1e11
    assert link.latency_seconds == usual.latency_seconds


def test_a_config_file_is_read_relative_to_the_request(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama", "hidden_size": 64}')
    data = inline_files({"model": {"config": "config.json"}}, tmp_path)
    assert data["model"]["config"] == {"model_type": "llama", "hidden_size": 64}
