"""Exporters: pure text that says all of the plan, or a refusal that says what it cannot."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from cost_models import catalog
from cost_models.errors import BrokenRule, UnknownName
from cost_models.memory import memory_ledger
from cost_models.parameters import total_parameters
from planner.errors import ExportUnsupported
from planner.exporters import EXPORTERS, ExportOptions, exporter, render, targets
from planner.plan import Plan
from planner.question import Question
from tests.unit.planner.plans import configuration, infeasible, pipeline, plan, question


def texts(made: Plan, target: str = "deepspeed", **options: Any) -> dict[str, str]:
    return {artifact.path: artifact.text for artifact in render(made, target, ExportOptions(**options))}


def config(made: Plan, **options: Any) -> dict[str, Any]:
    whole: dict[str, Any] = json.loads(texts(made, **options)["ds_config.json"])
    return whole


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for item in value.values():
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)
    elif isinstance(value, str):
        yield value


def test_the_batch_multiplies_to_the_whole() -> None:
    found = config(plan())
    assert found["train_batch_size"] == 128
    assert found["train_micro_batch_size_per_gpu"] * found["gradient_accumulation_steps"] * 8 == 128


def test_tensor_parallel_leaves_the_whole_batch_to_deepspeed() -> None:
    found = config(plan(configuration(tensor_parallel=2, data_parallel=4, gradient_accumulation_steps=16)))
    assert "train_batch_size" not in found
    assert found["tensor_parallel"] == {"autotp_size": 2}


def test_nothing_is_left_to_guessing() -> None:
    assert "auto" not in set(strings(config(plan())))


def small(**model: Any) -> Question:
    """The question of a model smaller than any of DeepSpeed's default buffers."""
    whole = question()
    sizes = {"hidden_size": 512, "intermediate_size": 1024, "vocab_size": 8192, "head_dim": 16}
    return whole.model_copy(update={"model": whole.model.model_copy(update=sizes | model)})


def test_zero_3_states_the_buffers_that_were_counted() -> None:
    zero = config(plan(configuration(zero_stage=3)))["zero_optimization"]
    assert zero["stage"] == 3
    assert zero["stage3_max_live_parameters"] == 1_000_000_000
    assert zero["stage3_prefetch_bucket_size"] == 50_000_000
    assert "allgather_bucket_size" not in zero


@pytest.mark.parametrize(
    ("stage", "keys"),
    [
        (1, ("reduce_bucket_size", "allgather_bucket_size")),
        (2, ("reduce_bucket_size", "allgather_bucket_size")),
        (3, ("reduce_bucket_size", "stage3_max_live_parameters", "stage3_max_reuse_distance")),
    ],
)
def test_no_buffer_is_larger_than_the_model(stage: int, keys: tuple[str, ...]) -> None:
    made = plan(configuration(zero_stage=stage), request=small())
    zero = config(made)["zero_optimization"]
    parameters = total_parameters(made.request.model)
    assert {zero[key] for key in keys} == {parameters}
    assert zero.get("stage3_prefetch_bucket_size", 0) <= parameters


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_the_bucket_is_as_large_as_the_memory_ledger_counts(stage: int) -> None:
    chosen, asked = configuration(zero_stage=stage), small()
    elements = config(plan(chosen, request=asked))["zero_optimization"]["reduce_bucket_size"]
    ledger = memory_ledger(asked.job, chosen, catalog.calibration(), oom_risk=0.01)
    assert ledger.stages[0].instants["end_of_backward"]["buckets"] == 2 * 2 * elements
    assert ledger.stages[0].instants["load"].get("buckets", 0) == (2 * elements if stage == 3 else 0)


def test_partial_offload_is_a_ratio_under_zero_3() -> None:
    stage = {"layers": 32, "recompute": {"none": 32}, "optimizer_layers_offloaded": 8}
    zero = config(plan(configuration(zero_stage=3, stages=[stage])))["zero_optimization"]
    assert zero["offload_optimizer"] == {"device": "cpu", "pin_memory": True, "ratio": 0.25}


def test_offload_of_every_layer_needs_no_ratio() -> None:
    stage = {"layers": 32, "recompute": {"none": 32}, "optimizer_layers_offloaded": 32}
    zero = config(plan(configuration(stages=[stage])))["zero_optimization"]
    assert zero["offload_optimizer"] == {"device": "cpu", "pin_memory": True}


def test_what_the_script_must_do_is_beside_it() -> None:
    settings = json.loads(texts(plan())["model_settings.json"])
    assert settings["attn_implementation"] == "sdpa"
    assert settings["recompute_stages"] == [{"layers": [0, 32], "full": [0, 12], "selective": [12, 12], "interval": 1}]


def test_sgd_has_the_momentum_that_the_memory_ledger_counts() -> None:
    made = plan(configuration(optimizer="sgd"))
    assert config(made, learning_rate=0.1)["optimizer"] == {"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9}}


def test_the_learning_rate_is_the_callers() -> None:
    assert config(plan())["optimizer"]["params"] == {}
    assert config(plan(), learning_rate=1e-4)["optimizer"]["params"] == {"lr": 1e-4}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"backend": {"name": "megatron"}}, "the plan is for backend megatron"),
        ({"gradient_compression": "powersgd"}, "gradient_compression powersgd: no such key"),
        ({"optimizer": "1-bit-adam"}, "optimizer 1-bit-adam"),
        ({"precision": "fp8"}, "precision fp8"),
        (
            {"stages": [{"layers": 32, "recompute": {"none": 32}, "optimizer_layers_offloaded": 8}]},
            "25% of the optimizer states offloaded",
        ),
    ],
)
def test_what_cannot_be_said_is_refused(changes: dict[str, Any], message: str) -> None:
    made = plan(configuration(**changes))
    with pytest.raises(ExportUnsupported) as caught:
        render(made, "deepspeed")
    assert message in str(caught.value)
    lossy = texts(made, allow_lossy=True)
    assert message in json.loads(lossy["ds_config.json"])["_meshwright"]["lost"][0]
    assert f"# note: not expressed: {message}" in lossy["launch.sh"]


def test_a_plan_without_a_configuration_exports_to_nothing() -> None:
    with pytest.raises(ExportUnsupported, match="the plan is infeasible and has no configuration"):
        render(infeasible(), "deepspeed")


def test_an_unknown_target_offers_known_ones() -> None:
    with pytest.raises(UnknownName, match="did you mean deepspeed"):
        render(plan(), "deepsped")


@pytest.mark.parametrize("target", sorted(EXPORTERS))
def test_every_target_loads_and_states_its_releases(target: str) -> None:
    found = exporter(target)
    assert found.name == target
    assert target in targets()
    assert str(found.versions)


def test_one_node_starts_standalone() -> None:
    script = texts(plan())["launch.sh"]
    assert script.startswith("#!/usr/bin/env bash\n")
    assert 'torchrun --standalone --nproc-per-node=8 \\\n  "$@"' in script
    assert "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in script
    assert "PET_" not in script


def test_several_nodes_meet_at_the_first() -> None:
    script = texts(plan(), nodes=2)["launch.sh"]
    assert "--nnodes=2 --nproc-per-node=4 --rdzv-backend=c10d" in script
    assert "${MASTER_ADDR:?" in script


def test_the_nodes_are_those_of_the_cluster_that_was_planned_for() -> None:
    script = texts(plan(request=question(nodes=2, gpus_per_node=4)))["launch.sh"]
    assert "--nnodes=2 --nproc-per-node=4" in script
    part = texts(plan(configuration(data_parallel=6), request=question(nodes=2, gpus_per_node=4)))["launch.sh"]
    assert "--nnodes=2 --nproc-per-node=3" in part


def test_nodes_that_do_not_divide_the_processes_are_refused() -> None:
    with pytest.raises(BrokenRule, match="nodes 3 x gpus_per_node 2 is 6 but the plan uses 8"):
        texts(plan(), nodes=3)


def test_the_text_is_pure() -> None:
    assert texts(plan()) == texts(plan())


def test_every_artifact_says_where_it_is_from() -> None:
    for text in texts(plan()).values():
        assert "meshwright export plan.json --to deepspeed" in text
        assert "plan_sha256" in text


def megatron(**changes: Any) -> Plan:
    return plan(pipeline(2, **({"backend": {"name": "megatron"}, "attention": "flash"} | changes)))


def flags(made: Plan) -> list[str]:
    return [line for line in texts(made, "megatron")["megatron_args.txt"].splitlines() if not line.startswith("#")]


@pytest.mark.parametrize(("stated", "said"), [(None, "0.0"), (0.0, "0.0"), (0.1, "0.1")])
def test_megatron_flags_say_dropout_which_would_be_a_tenth(stated: float | None, said: str) -> None:
    made = megatron()
    training = made.request.training.model_copy(update={"dropout": stated})
    made = made.model_copy(update={"request": made.request.model_copy(update={"training": training})})
    assert {f"--attention-dropout {said}", f"--hidden-dropout {said}"} <= set(flags(made))


def test_megatron_flags_say_the_degrees() -> None:
    found = flags(megatron(tensor_parallel=2, data_parallel=2, sequence_parallel=True))
    assert "--tensor-model-parallel-size 2" in found
    assert "--pipeline-model-parallel-size 2" in found
    assert "--sequence-parallel" in found
    assert "--use-distributed-optimizer" in found
    assert "--bf16" in found


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({"full": 16}, ["--recompute-granularity full", "--recompute-method uniform", "--recompute-num-layers 1"]),
        (
            {"full": 4, "none": 12},
            ["--recompute-granularity full", "--recompute-method block", "--recompute-num-layers 4"],
        ),
        ({"selective": 16}, ["--recompute-granularity selective"]),
    ],
)
def test_megatron_flags_say_what_is_recomputed(counts: dict[str, int], expected: list[str]) -> None:
    stages = [{"layers": 16, "recompute": counts}] * 2
    found = flags(megatron(stages=stages))
    assert [flag for flag in found if flag.startswith("--recompute")] == expected


def test_megatron_flags_say_uneven_ends() -> None:
    layers = (7, 9, 9, 7)
    stages = [{"layers": n, "recompute": {"none": n}} for n in layers]
    found = flags(plan(pipeline(4, backend={"name": "megatron"}, attention="flash", stages=stages)))
    assert "--decoder-first-pipeline-num-layers 7" in found
    assert "--decoder-last-pipeline-num-layers 7" in found


def test_megatron_flags_say_any_other_division_of_layers() -> None:
    stages = [{"layers": n, "recompute": {"full": n}} for n in (7, 8, 9, 8)]
    made = plan(pipeline(4, backend={"name": "megatron"}, attention="flash", stages=stages))
    assert "--pipeline-model-parallel-layout 'Et*7|t*8|t*9|t*8L'" in flags(made)
    assert "--recompute-method uniform" in flags(made), "all layers are alike although the stages are not"
    assert "# valid_for: megatron-core <0.18,>=0.13" in texts(made, "megatron")["megatron_args.txt"]


def test_megatron_flags_say_shorter_first_and_last_chunks() -> None:
    """As Llama 3 405B was trained: 126 layers on 16 stages of 8 chunks, the first and last without a layer."""
    stages = [{"layers": n, "recompute": {"none": n}} for n in (7, *[8] * 14, 7)]
    shape = {"virtual_pipeline_stages": 8, "gradient_accumulation_steps": 16, "data_parallel": 1}
    found = flags(plan(pipeline(16, backend={"name": "megatron"}, attention="flash", stages=stages, **shape)))
    (layout,) = [flag for flag in found if "layout" in flag]
    chunks = layout.split("'")[1].split("|")
    assert len(chunks) == 16 * 8
    assert (chunks[0], chunks[1], chunks[-2], chunks[-1]) == ("E", "t*1", "t*1", "L")
    assert not any(flag.startswith("--num-layers-per-virtual") for flag in found)


def test_megatron_counts_recomputed_layers_in_every_virtual_stage() -> None:
    def interleaved(full: int) -> Plan:
        return megatron(
            virtual_pipeline_stages=2, stages=[{"layers": 16, "recompute": {"full": full, "none": 16 - full}}] * 2
        )

    assert "--recompute-num-layers 2" in flags(interleaved(4))
    with pytest.raises(ExportUnsupported, match="3 layers recomputed over 2 virtual stages"):
        texts(interleaved(3), "megatron")


@pytest.mark.parametrize(
    ("changes", "flag", "there"),
    [
        ({"cross_entropy": "fused"}, "--cross-entropy-loss-fusion", True),
        ({"cross_entropy": "vocab_parallel"}, "--cross-entropy-loss-fusion", False),
        ({"gradient_compression": "bf16"}, "--grad-reduce-in-bf16", True),
        ({"zero_stage": 0}, "--overlap-grad-reduce", True),
        ({"zero_stage": 0}, "--overlap-param-gather", False),
        ({"zero_stage": 0, "communication_overlap": False}, "--overlap-grad-reduce", False),
    ],
)
def test_megatron_flags_say_the_kernels_and_the_reduction(changes: dict[str, Any], flag: str, there: bool) -> None:
    assert (flag in flags(megatron(**changes))) is there


def test_megatron_fsdp_is_zero_2_and_3() -> None:
    whole = [{"layers": 32, "recompute": {"none": 32}}]
    made = plan(configuration(backend={"name": "megatron"}, attention="flash", stages=whole))
    found = flags(made)
    assert "--use-megatron-fsdp" in found
    assert "--data-parallel-sharding-strategy optim_grads" in found
    assert "--ckpt-format fsdp_dtensor" in found
    assert "# valid_for: megatron-core <0.18,>=0.14" in texts(made, "megatron")["megatron_args.txt"]


def test_megatron_refuses_recompute_that_differs_between_stages() -> None:
    stages = [{"layers": 16, "recompute": {"full": 16}}, {"layers": 16, "recompute": {"none": 16}}]
    with pytest.raises(ExportUnsupported, match="recompute differs between stages"):
        texts(megatron(stages=stages), "megatron")


@pytest.mark.parametrize("target", sorted(EXPORTERS))
@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"optimizer_in_backward": True}, "optimizer_in_backward"),
        ({"optimizer_paged": True}, "optimizer_paged"),
        ({"offload_to": "nvme"}, "offload_to nvme"),
        ({"state_precision": "pure"}, "state_precision pure"),
    ],
)
def test_what_only_the_training_script_can_do_is_a_loss(target: str, option: dict[str, Any], said: str) -> None:
    made = plan(configuration())
    training = made.request.training.model_copy(update=option)
    asked = made.model_copy(update={"request": made.request.model_copy(update={"training": training})})
    found = exporter(target)
    assert any(loss.startswith(said) for loss in found.unsupported(asked))
    assert not any(loss.startswith(said) for loss in found.unsupported(made))
