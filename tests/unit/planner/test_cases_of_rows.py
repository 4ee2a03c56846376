"""From a row to a job and a configuration: what is taken, what is assumed, and every reason to skip."""

from typing import Any

import pytest

from planner.datasets.clusters import pool_of
from planner.datasets.jobs import case_of
from planner.datasets.layouts import stage_layers
from planner.datasets.notes import read_notes
from planner.datasets.shapes import model_of
from planner.datasets.unusable import Unusable
from planner.datasets.vocabulary import offload_of
from planner.measurement import Measurement

MOE = "MoE experts=8 topk=2 moe-ffn=1024 layer-freq=([0]*1+[1]*3) shared-expert=512 etp=1"


def row(**changes: Any) -> Measurement:
    """A dense run on 8 A100, changed."""
    stated: dict[str, Any] = {
        "source": "here", "model": "house-llama", "layers": 16, "hidden": 2048, "heads": 16, "kv_heads": 8,
        "ffn_hidden": 5632, "vocab": 32000, "seq_len": 2048, "gpu": "A100-80GB-SXM", "n_gpus": 8, "gpus_per_node": 8,
        "framework": "Megatron-LM", "precision": "bf16", "method": "full", "tp": 2, "pp": 2, "cp": 1, "ep": 1, "dp": 2,
        "zero_stage": 1, "micro_batch": 2, "global_batch_seqs": 32, "recompute": "none", "flash_attn": "yes",
        "optimizer": "adam", "step_time_s": 1.0, "outcome": "ok",
    }  # fmt: skip
    stated |= changes
    return Measurement(**stated, facts=read_notes(stated.get("notes", "")))


def test_a_complete_row_needs_no_assumption() -> None:
    case = case_of(row(notes="sequence-parallel"))
    configuration = case.configuration
    assert case.assumed == ()
    assert configuration.backend.name == "megatron"
    assert (configuration.tensor_parallel, configuration.pipeline_parallel, configuration.data_parallel) == (2, 2, 2)
    assert (configuration.micro_batch_size, configuration.gradient_accumulation_steps) == (2, 8)
    assert configuration.sequence_parallel
    assert [stage.layers for stage in configuration.stages] == [8, 8]
    assert case.job.model.num_key_value_heads == 8


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"unreadable": ("tp",)}, "unreadable cell: tp"),
        ({"notes": "experts=banana"}, "unreadable token: experts=banana"),
        ({"notes": "sequence_parallel=maybe"}, "unreadable token: sequence_parallel=maybe"),
        ({"offload": "banana"}, "offload not known: banana"),
        ({"optimizer": "sophia"}, "optimizer not known: sophia"),
        ({"hidden": None}, "shape not stated"),
        ({"model": "jamba-52b"}, "architecture is not a plain transformer"),
        ({"model": "Nemotron_3_Super"}, "architecture is not a plain transformer"),
        ({"model": "t5/t5_mcore_tp1_pp1"}, "architecture is not a plain transformer"),
        ({"notes": "hybrid-override-pattern=MEM*E"}, "architecture is not a plain transformer"),
        ({"model": "house-moe"}, "experts not stated"),
        ({"heads": 24, "kv_heads": 7}, "shape contradicts itself"),
        ({"seq_len": None}, "sequence length not stated"),
        ({"gpu": ""}, "device not stated"),
        ({"gpu": "Z900"}, "device not in the catalogue: Z900"),
        ({"gpu": "A800/H800-80GB (not separated)"}, "ambiguous device"),
        ({"n_gpus": None}, "world size not stated"),
        ({"framework": ""}, "framework not stated"),
        ({"tp": None, "dp": None}, "tp not stated"),
        ({"dp": 4}, "printed degrees contradict the world size"),
        ({"notes": "tp*pp*dp=640 != n_gpus=320 as printed"}, "printed degrees contradict the world size"),
        ({"zero_stage": 4}, "zero_stage is above 3"),
        ({"micro_batch": None}, "micro-batch not stated"),
        ({"global_batch_seqs": 30}, "global batch is no multiple of micro-batch x dp"),
        ({"precision": ""}, "precision not stated"),
        ({"precision": "int3"}, "precision not known: int3"),
        ({"recompute": "sometimes"}, "recompute not known: sometimes"),
        ({"optimizer": "shampoo"}, "optimizer not known: shampoo"),
        ({"method": "dpo"}, "method not known: dpo"),
        ({"notes": "peft_type=IA3"}, "adapter is not LoRA"),
        ({"layers": 1}, "more stages than layers"),
        ({"notes": "stage_layers=9+8"}, "stated layers of the stages do not add up"),
        ({"ep": None, "notes": MOE}, "ep not stated"),
    ],
)
def test_every_reason_to_skip(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(Unusable) as caught:
        case_of(row(**changes))
    assert str(caught.value).startswith(reason)


@pytest.mark.parametrize(
    ("changes", "assumption"),
    [
        ({"framework": "abacus"}, "framework"),
        ({"recompute": ""}, "recompute"),
        ({"flash_attn": ""}, "attention"),
        ({"optimizer": ""}, "optimizer"),
        ({"zero_stage": None}, "zero_stage"),
        ({"global_batch_seqs": None}, "grad_accum"),
        ({"vocab": None}, "vocab"),
        ({"model": "house"}, "family"),
        ({"method": "lora"}, "lora"),
    ],
)
def test_what_is_assumed_is_said(changes: dict[str, Any], assumption: str) -> None:
    assert [text.partition(":")[0] for text in case_of(row(**changes)).assumed] == [assumption]


def test_a_batch_follows_from_a_rate_and_a_step() -> None:
    stated = {"global_batch_seqs": None, "grad_accum": None, "step_time_s": 2.0, "tokens_per_s_per_gpu": None}
    length, gpus = row().seq_len or 0, row().n_gpus or 0
    rate = 24 * length / (gpus * 2.0)
    case = case_of(row(**stated | {"tokens_per_s_per_gpu": rate}))
    assert case.configuration.gradient_accumulation_steps == 24 // (2 * case.configuration.data_parallel)
    assert not any(text.startswith("grad_accum") for text in case.assumed)
    loose = case_of(row(**stated | {"samples_per_s": 7.3}))
    assert any(text.startswith("grad_accum") for text in loose.assumed)


def test_a_pipeline_of_torchtitan_has_as_many_micro_batches_as_stages() -> None:
    stated = {"framework": "torchtitan (FSDP2)", "micro_batch": None, "grad_accum": None, "zero_stage": 3}
    case = case_of(row(**stated))
    assert (case.configuration.micro_batch_size, case.configuration.gradient_accumulation_steps) == (8, 2)
    assert [text.partition(":")[0] for text in case.assumed] == ["micro_batch"]
    with pytest.raises(Unusable, match="virtual stages not stated"):
        case_of(row(notes="schedule Interleaved 1F1B", **stated))
    with pytest.raises(Unusable, match="micro-batch not stated"):
        case_of(row(**stated | {"framework": "Megatron-LM"}))


@pytest.mark.parametrize(
    ("offload", "stage", "wanted"),
    [
        ("none", 2, (False, False, False)),
        ("cpu", 2, (True, False, False)),
        ("ZeRO-Offload", 3, (True, True, False)),
        ("activation(cpu)", 1, (False, False, True)),
        ("optimizer+param(cpu)", 3, (True, True, False)),
    ],
)
def test_offloads(offload: str, stage: int, wanted: tuple[bool, bool, bool]) -> None:
    assert offload_of(row(offload=offload, zero_stage=stage)) == wanted


@pytest.mark.parametrize(
    ("text", "recompute"),
    [
        ("AC", "full"),
        ("enabled", "full"),
        ("core_attn", "selective"),
        ("per-op SAC", "selective"),
        ("disabled", "none"),
    ],
)
def test_recomputes(text: str, recompute: str) -> None:
    stages = case_of(row(recompute=text)).configuration.stages
    assert all(getattr(stage.recompute, recompute) == stage.layers for stage in stages)


@pytest.mark.parametrize(
    ("text", "optimizer"),
    [("fused LAMB", "adamw"), ("RMSprop", "lion"), ("GaLore", "adafactor"), ("distributed", "adamw"), ("SGD", "sgd")],
)
def test_optimizers_are_read_by_what_they_keep(text: str, optimizer: str) -> None:
    assert case_of(row(optimizer=text)).configuration.optimizer == optimizer


def test_mixed_precision_without_a_name_is_the_devices_own() -> None:
    for gpu, precision in (("V100-32GB-SXM2", "fp16"), ("A100-80GB-SXM", "bf16")):
        case = case_of(row(gpu=gpu, precision="mixed"))
        assert case.configuration.precision == precision
        assert any(text.startswith("dtype") for text in case.assumed)


def test_a_blank_degree_is_one_where_the_others_fill_the_devices() -> None:
    assert case_of(row(cp=None)).configuration.context_parallel == 1


def test_a_blank_degree_is_one_where_the_framework_has_none_such() -> None:
    blank = dict.fromkeys(("tp", "pp", "cp", "ep"))
    case = case_of(row(framework="torchtune", zero_stage=3, dp=None, global_batch_seqs=None, grad_accum=1, **blank))
    assert (case.configuration.data_parallel, case.configuration.backend.name) == (8, "fsdp")


@pytest.mark.parametrize(
    ("framework", "zero_stage", "backend"),
    [
        ("Megatron-DeepSpeed", 1, "megatron-deepspeed"), ("Megatron-Bridge (Megatron-Core)", 1, "megatron"),
        ("torchtitan (FSDP2)", 3, "fsdp"), ("XTuner (DeepSpeed)", 3, "deepspeed"), ("transformers + peft", 0, "ddp"),
        ("litgpt", 0, "ddp"), ("llm-foundry/Composer (PyTorch FSDP)", 3, "fsdp"), ("DeepSpeed", 2, "deepspeed"),
    ],
)  # fmt: skip
def test_frameworks(framework: str, zero_stage: int, backend: str) -> None:
    case = case_of(row(framework=framework, zero_stage=zero_stage, tp=1, pp=1, dp=8))
    assert case.configuration.backend.name == backend


@pytest.mark.parametrize(
    ("framework", "stated", "recompute"),
    [("XTuner (DeepSpeed)", "", "full"), ("EasyContext (zigzag ring attention + DeepSpeed ZeRO-3)", "", "full"),
     ("XTuner (DeepSpeed)", "none", "none"), ("DeepSpeed", "", "none")],
)  # fmt: skip
def test_recompute_that_a_table_does_not_state_is_the_framework_s(framework: str, stated: str, recompute: str) -> None:
    case = case_of(row(framework=framework, recompute=stated, zero_stage=3, tp=1, pp=1, cp=1, dp=8))
    assert getattr(case.configuration.stages[0].recompute, recompute) == case.job.model.num_hidden_layers


@pytest.mark.parametrize(
    ("printed", "precision", "pure"),
    [
        ("MXFP8", "fp8", False), ("bf16+float8 linear", "fp8", False), ("FP8-CS", "fp8", False), ("BF16", "bf16", True),
        ("bf16-true", "bf16", True), ("amp_bf16", "bf16", False), ("bf16 +fp32 adapter", "bf16", True),
        ("fp16", "fp16", True),
    ],
)  # fmt: skip
def test_precisions(printed: str, precision: str, pure: bool) -> None:
    case = case_of(row(framework="torchtune", precision=printed, tp=1, pp=1, dp=8, zero_stage=3))
    assert (case.configuration.precision, case.pure_low_precision) == (precision, pure)


def test_presets_are_corrected_by_the_numbers_of_the_row() -> None:
    cut, assumed = model_of(
        row(model="llama3-70b (L=12)", layers=12, hidden=8192, heads=64, ffn_hidden=28672, vocab=128257)
    )
    assert (cut.num_hidden_layers, cut.vocab_size, cut.gated_mlp, assumed) == (12, 128257, True, ())


def test_a_mixture_is_read_from_the_notes() -> None:
    model, _ = model_of(row(model="house-llama-moe", layers=4, notes=MOE))
    assert [kind.mlp for kind in model.layer_sequence] == ["dense", "moe", "moe", "moe"]
    assert model.moe is not None
    assert (model.moe.num_experts, model.moe.num_experts_per_tok, model.moe.shared_expert_intermediate_size) == (
        8,
        2,
        512,
    )


def test_an_older_nemotron_is_a_transformer() -> None:
    assert model_of(row(model="Nemotron-4 340B", ffn_hidden=8192))[0].num_hidden_layers == 16


def test_gpt_and_llama_differ_by_family() -> None:
    gpt, _ = model_of(row(model="gpt-1.3B", ffn_hidden=8192, kv_heads=16))
    llama, _ = model_of(row())
    assert (gpt.gated_mlp, gpt.normalization, gpt.tie_word_embeddings) == (False, "layernorm", True)
    assert (llama.gated_mlp, llama.normalization, llama.tie_word_embeddings) == (True, "rmsnorm", False)


@pytest.mark.parametrize(
    ("layers", "stages", "notes", "split"),
    [
        (16, 4, "", (4, 4, 4, 4)),
        (126, 8, "", (15, 16, 16, 16, 16, 16, 16, 15)),
        (10, 4, "", (2, 3, 3, 2)),
        (11, 4, "", (3, 3, 3, 2)),
        (12, 4, "decoder-first-pipeline-num-layers=3", (3, 3, 3, 3)),
        (14, 4, "decoder-first-pipeline-num-layers=2", (2, 4, 4, 4)),
        (7, 2, "stage_layers=3+4", (3, 4)),
        (15, 4, "pipeline-model-parallel-layout=Et*3|(tt|)*6L", (5, 4, 4, 2)),
    ],
)
def test_layers_of_the_stages(layers: int, stages: int, notes: str, split: tuple[int, ...]) -> None:
    assert stage_layers(row(notes=notes), layers, stages) == split


@pytest.mark.parametrize(
    ("interconnect", "per_device", "shared"),
    [
        ("NVSwitch + 400Gb/s RDMA per GPU (Grand Teton)", 50e9, False),
        ("NVLink3 + 4x Omni-Path 100Gb/s per node (Jean Zay)", 6.25e9, False),
        ("NVLink + 8x HDR 200Gb/s IB per node", 25e9, False),
        ("1600 Gbps RoCE node-node", 25e9, False),
        ("NVLink2 + Omni-Path 100Gb/s (Jean Zay)", 12.5e9, True),
        ("hybrid-mesh NVLink (NV1/NV2) + IB 100Gb/s EDR", 12.5e9, True),
        ("NVLink/NVSwitch + IB", 25e9, False),
        ("", 25e9, False),
    ],
)
def test_networks(interconnect: str, per_device: float, shared: bool) -> None:
    pool, _, ambiguous = pool_of(row(interconnect=interconnect, n_gpus=16))
    assert (pool.inter_node_link.bandwidth, pool.inter_node_link.shared_by_node, ambiguous) == (
        per_device,
        shared,
        False,
    )
    assert (pool.nodes, pool.gpus_per_node) == (2, 8)


def test_an_ambiguous_device_of_one_family_stands_for_time_only() -> None:
    assert case_of(row(gpu="A100")).ambiguous_device
    assert not case_of(row(gpu="A100-80GB")).ambiguous_device
    assert not case_of(row(gpu="A100", gpu_mem_gb=80)).ambiguous_device
    assert case_of(row(gpu="A100", gpu_mem_gb=40)).job.device.name == "a100-sxm-40gb"
