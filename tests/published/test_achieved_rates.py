"""Rates that reports state for whole runs, which no fit uses: no prediction may promise much more.

All count model FLOPs as `model_flops` does: recomputation left out, attention scores not halved by the causal mask.
"""

import pytest

from cost_models import catalog
from cost_models.job import Job
from cost_models.ledger import TimeLedger
from cost_models.pools import pool
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.configuration import BackendChoice, Configuration, RecomputeCounts, Stage
from cost_models.specs.model import ModelSpec
from cost_models.specs.training import TrainingSpec
from cost_models.time import time_ledger

BEST_A100 = 225.0
"""TFLOP/s of GPT3-2.7B, sequence 8192, on 8 A100-80GB: arXiv:2307.08691 table 1, the best of it (72 % of the peak)."""


def gpt(layers: int, hidden: int, heads: int) -> ModelSpec:
    """A GPT-3 of these sizes."""
    return ModelSpec(
        hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=heads,
        head_dim=hidden // heads, intermediate_size=4 * hidden, vocab_size=51200, gated_mlp=False,
        normalization="layernorm", norm_bias=True, qkv_bias=True, attention_output_bias=True, mlp_bias=True,
        position_embedding="learned", position_embedding_rows=8192, tie_word_embeddings=True,
    )  # fmt: skip


def stages(sizes: tuple[int, ...], mode: str) -> tuple[Stage, ...]:
    """Stages of these layers under one recompute mode."""
    return tuple(Stage(layers=n, recompute=RecomputeCounts(**{mode: n})) for n in sizes)


def run(
    model: ModelSpec, device: str, gpus: int, sequence: int, batch: int, layout: tuple[Stage, ...], **changes: object
) -> TimeLedger:
    """A step in bf16, of Megatron-LM with the distributed optimizer where nothing else is said."""
    backend = BackendChoice(name=changes.pop("backend", "megatron"))
    parts = {"micro_batch_size": 1, "data_parallel": gpus, "zero_stage": 1, "precision": "bf16", "attention": "flash"}
    parts |= changes
    micro_batches = batch // (parts["micro_batch_size"] * parts["data_parallel"])  # type: ignore[operator]
    configuration = Configuration(
        backend=backend, stages=layout, pipeline_parallel=len(layout), gradient_accumulation_steps=micro_batches,
        **parts,
    )  # fmt: skip
    job = Job(
        model=model,
        cluster=ClusterSpec(pools=(pool(device=device, nodes=gpus // 8, gpus_per_node=8),)),
        training=TrainingSpec(sequence_length=sequence, global_batch_size=batch),
    )
    return time_ledger(job, configuration, catalog.calibration())


def teraflops(ledger: TimeLedger, gpus: int) -> float:
    """Model FLOPs a second and device. [TFLOP/s]"""
    return ledger.model_flops / ledger.step_seconds / gpus / 1e12


def test_the_best_published_rate_on_a100() -> None:
    """GPT3-2.7B at 8192 tokens, arXiv:2307.08691 table 1. Its training code is fused as Megatron's is, not the same."""
    found = run(gpt(32, 2560, 20), "a100-sxm-80gb", 8, 8192, 64, stages((32,), "none"), micro_batch_size=2,
                cross_entropy="fused")  # fmt: skip
    assert teraflops(found, 8) == pytest.approx(BEST_A100, rel=0.05)


@pytest.mark.parametrize(("name", "tensor"), [("llama-2-7b", 1), ("llama-2-7b", 2), ("llama-2-13b", 2)])
def test_no_llama_on_a100_beats_it(name: str, tensor: int) -> None:
    model = catalog.model(name)
    found = run(model, "a100-sxm-80gb", 8, 4096, 64, stages((model.num_hidden_layers,), "none"),
                tensor_parallel=tensor, sequence_parallel=tensor > 1, data_parallel=8 // tensor,
                cross_entropy="fused")  # fmt: skip
    assert teraflops(found, 8) <= 1.02 * BEST_A100


def test_nemo_gpt3_5b_on_a100() -> None:
    """40345 tokens/s on 8 A100-80GB: NVIDIA/NeMo-Megatron-Launcher README, GPT-3 5B, TP 1, PP 1, no flash attention.

    Batch 2048 and micro-batch 4 are the defaults of its configuration. Without selective recompute the scores alone
    would not fit.
    """
    found = run(gpt(24, 4096, 32), "a100-sxm-80gb", 8, 2048, 2048, stages((24,), "selective"), micro_batch_size=4,
                attention="eager", cross_entropy="vocab_parallel")  # fmt: skip
    assert 2048 * 2048 / found.step_seconds == pytest.approx(40345, rel=0.05)


@pytest.mark.parametrize(("gpus", "published"), [(8192, 430.0), (16384, 400.0)])
def test_llama_3_405b_on_h100(gpus: int, published: float) -> None:
    """arXiv:2407.21783 table 4: TP 8, PP 16, 16 million tokens, first and last stage one layer short.

    Its stack is PyTorch's FSDP, which keeps gathered parameters for the step, and not Megatron's kernels; the
    interleaving is not printed: a layer a chunk is assumed.
    """
    model = catalog.model("llama-3.1-405b")
    found = run(model, "h100-sxm-80gb", gpus, 8192, 2048, stages((7, *(8,) * 14, 7), "none"), backend="fsdp",
                virtual_pipeline_stages=8, tensor_parallel=8, sequence_parallel=True, data_parallel=gpus // 128,
                zero_stage=2, attention="sdpa", cross_entropy="vocab_parallel")  # fmt: skip
    assert teraflops(found, gpus) == pytest.approx(published, rel=0.07)


@pytest.mark.parametrize(
    ("layers", "hidden", "heads", "stage_count", "batch", "rates"),
    [(96, 12288, 96, 12, 1536, {384: 153.0, 768: 149.0, 1536: 141.0}),
     (105, 20480, 128, 35, 2240, {560: 171.0, 1120: 167.0, 2240: 159.0})],
    ids=["175b", "530b"],
)  # fmt: skip
@pytest.mark.parametrize("virtual", [1, 3])
def test_more_devices_slow_each_other_down_no_more_than_bubble_and_network(
    layers: int, hidden: int, heads: int, stage_count: int, batch: int, rates: dict[int, float], virtual: int
) -> None:
    """arXiv:2104.04473 table 2, Megatron-LM on up to 2240 A100: TP 8, micro-batch 1, full recompute.

    Whether stages interleave is not printed. Rates count recomputed work (equation 3). No term for waiting in
    lockstep is needed: the error moves by less than 6 points from the smallest cluster to four times its size.
    """
    errors = []
    for gpus, published in rates.items():
        even = tuple(layers // stage_count + (s < layers % stage_count) for s in range(stage_count))
        found = run(gpt(layers, hidden, heads), "a100-sxm-80gb", gpus, 2048, batch, stages(even, "full"),
                    tensor_parallel=8, data_parallel=gpus // (8 * stage_count), virtual_pipeline_stages=virtual,
                    precision="fp16", attention="eager", cross_entropy="vocab_parallel", zero_stage=0,
                    communication_overlap=False)  # fmt: skip
        flops = 96 * batch * 2048 * layers * hidden**2 * (1 + 2048 / (6 * hidden) + 51200 / (16 * layers * hidden))
        errors.append(flops / published / 1e12 / gpus / found.step_seconds - 1)
    assert max(map(abs, errors)) <= 0.1
    assert abs(errors[-1] - errors[0]) <= 0.06
