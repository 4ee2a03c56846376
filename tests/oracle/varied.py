"""Seeded random small jobs in which any decision may be open, any quantity limited and any list of objectives asked."""

import random
from dataclasses import dataclass, replace
from typing import Any, Final

from cost_models import catalog
from cost_models.job import Job
from cost_models.specs.choices import BACKENDS, OBJECTIVES, PRECISIONS
from cost_models.specs.cluster import ClusterSpec, DeviceSpec, LinkSpec, NodePool
from cost_models.specs.model import LayerKind, MlaSpec, ModelSpec, MoeSpec
from cost_models.specs.training import BatchRange, LoraSpec, TrainingSpec
from solver.domains import Domains
from solver.problem import Problem
from tests.oracle.instances import GIB

PRICE, WATTS = 2.0, 400.0
"""Of a device: for an hour, and its power. [W]"""
DEVICES: Final = ("a100-sxm-80gb", "rtx-4090", "h100-sxm-80gb", "v100-sxm-32gb", "b200-sxm-180gb", "l40s")
STAGES: Final = {
    "deepspeed": [2, 1, 3],
    "megatron": [1, 0],
    "fsdp": [2, 3],
    "ddp": [0],
    "megatron-deepspeed": [1, 0],
}
LOSSES: Final = {
    "deepspeed": ["fused", "eager", "vocab_parallel"],
    "megatron": ["vocab_parallel", "fused", "eager"],
    "fsdp": ["fused", "eager", "vocab_parallel"],
    "ddp": ["eager", "fused", "vocab_parallel"],
    "megatron-deepspeed": ["vocab_parallel", "fused", "eager"],
}
"""Values by back end, the ones that it has first."""
OPEN: Final = 5
"""Decisions with several values, beside the degrees; few, since every configuration is priced."""


@dataclass(frozen=True, kw_only=True)
class Varied:
    """One job, the values on offer, and what is wanted of it."""

    job: Job
    choices: dict[str, list[Any]]
    counts: tuple[int, ...]
    objectives: tuple[Any, ...]
    tolerance: float
    risk: float

    def problem(self, **extra: Any) -> Problem:
        """The same, as the solver takes it."""
        offered: dict[str, Any] = {key: tuple(values) for key, values in self.choices.items()}
        offered |= {"gpus": self.counts, "data_parallel": None, "gradient_accumulation_steps": None}
        asked: dict[str, Any] = {
            "job": self.job,
            "calibration": catalog.calibration(),
            "domains": Domains(offered),
            "objectives": self.objectives,
            "objective_tolerance": self.tolerance,
            "oom_risk": self.risk,
            "alternatives": 0,
        }
        return Problem(**(asked | extra))


def model(rng: random.Random) -> ModelSpec:
    """Dense, sparse or latent attention; layers of one kind, or of several in any order."""
    layers, heads = rng.choice([1, 2, 3, 4]), rng.choice([8, 16, 32])
    sparse = rng.random() < 0.35
    kinds: tuple[LayerKind, ...] = ()
    if rng.random() < 0.4:
        attention = rng.choice([("full",), ("full", "sliding"), ("sliding", "full", "full")])
        mlps = rng.choice([("dense", "moe"), ("moe", "dense", "moe")]) if sparse else ("dense",)
        kinds = tuple(
            LayerKind(attention=attention[i % len(attention)], mlp=mlps[i % len(mlps)]) for i in range(layers)
        )
    latent = rng.random() < 0.15
    experts = MoeSpec(
        num_experts=rng.choice([2, 4]),
        num_experts_per_tok=2,
        moe_intermediate_size=heads * 128,
        shared_expert_intermediate_size=rng.choice([0, heads * 64]),
    )
    return ModelSpec(
        hidden_size=heads * 128,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads if latent else rng.choice([1, 2, 8, heads]),
        head_dim=128,
        intermediate_size=heads * 352,
        vocab_size=rng.choice([32000, 128256]),
        tie_word_embeddings=rng.random() < 0.3,
        sliding_window=512 if any(k.attention == "sliding" for k in kinds) else None,
        layers=kinds,
        moe=experts if sparse else None,
        mla=MlaSpec(kv_lora_rank=256, qk_nope_head_dim=96, qk_rope_head_dim=32, v_head_dim=128) if latent else None,
    )


def pool(rng: random.Random, gpus: int) -> NodePool:
    """Nodes of one device, of which some memory is taken away; links of any speed."""
    found = catalog.device(rng.choice(DEVICES))
    usable = min(int(2 ** rng.uniform(2.5, 6.5) * GIB), found.usable_memory_bytes)
    device: DeviceSpec = found.model_copy(update={"usable_memory_bytes": usable, "tdp_watts": WATTS})
    per_node = rng.choice([n for n in (1, 2, 4) if gpus % n == 0])
    return NodePool(
        device=device,
        nodes=gpus // per_node,
        gpus_per_node=per_node,
        intra_node_link=LinkSpec(bandwidth=device.link_bandwidth * rng.choice([1, 1, 0.05])),
        inter_node_link=LinkSpec(bandwidth=device.inter_node_bandwidth * rng.choice([1, 1, 0.02])),
        link_domain=device.link_domain,
        host_memory_bytes=int(2 ** rng.uniform(3, 8) * GIB),
        price_per_gpu_hour=PRICE,
    )


def training(rng: random.Random) -> TrainingSpec:
    """Any method and optimizer, a batch or a range of them, an evaluation, masks of dropout."""
    batch, method = rng.choice([2, 4, 8]), rng.choice(["full", "full", "full", "full", "lora", "qlora"])
    length = rng.choice([512, 1024, 2048])
    return TrainingSpec(
        sequence_length=length,
        eval_sequence_length=rng.choice([None, None, 2 * length]),
        global_batch_size=BatchRange(min=batch, max=batch + rng.choice([1, 2])) if rng.random() < 0.3 else batch,
        method=method,
        lora=None if method == "full" else LoraSpec(rank=rng.choice([8, 64])),
        optimizer=rng.choice([*["adamw"] * 6, "sgd", "adafactor", "adamw-8bit", "lion", "muon"]),
        dropout=rng.choice([None, None, 0.0, 0.1]),
        optimizer_in_backward=method == "full" and rng.random() < 0.1,
    )


def _choices(rng: random.Random, job: Job) -> dict[str, list[Any]]:
    """One value of every decision, and of some of them several."""
    half = "bf16" if "bf16" in job.device.peak_flops else "fp16"
    backends = rng.sample(BACKENDS if job.training.method == "full" else BACKENDS[:1] + BACKENDS[2:4], k=3)
    sparse = job.model.moe is not None
    precisions = [p for p in PRECISIONS if p in (half, "fp32") or (p == "fp8" and "fp8" in job.device.peak_flops)]
    every: dict[str, list[Any]] = {
        "backend": backends,
        "virtual_pipeline_stages": [1, 2, 3],
        "micro_batch_size": [1, 2, 4],
        "expert_tensor_parallel": [1, 2],
        "zero_stage": [*STAGES[backends[0]], *({0, 1, 2, 3} - set(STAGES[backends[0]]))],
        "sequence_parallel": [True, False] if sparse and backends[0] == "megatron" else [False, True],
        "recompute_interval": [1, 2],
        "optimizer_offload": [False, True],
        "parameter_offload": [False, True],
        "activation_offload": [False, True],
        "communication_overlap": [True, False],
        "expert_overlap": [False, True],
        "fused_kernels": [True, False],
        "cuda_graph": [False, True],
        "compile": [False, True],
        "gradient_compression": ["none", *rng.sample(["bf16", "int8", "fp16", "powersgd", "top-k", "one-bit"], k=2)],
        "precision": precisions,
        "attention": ["flash", "eager", "sdpa"] if half == "bf16" else ["eager", "sdpa"],
        "cross_entropy": sorted(["fused", "vocab_parallel", "eager"], key=LOSSES[backends[0]].index),
    }
    if backends[0] == "megatron" and job.training.optimizer == "muon":
        every["communication_overlap"] = [False, True]
    likely = ("backend", "zero_stage", "optimizer_offload", "sequence_parallel", "cross_entropy")
    opened = {*rng.sample(likely, k=2), *rng.sample(sorted(every), k=OPEN - 2)}
    degrees = {
        "tensor_parallel": rng.choice([[1], [1, 2], [1, 2, 4]]),
        "context_parallel": rng.choice([[1], [1], [1, 2]]),
        "pipeline_parallel": rng.choice([[1], [1, 2], [1, 2, 3, 4]]),
        "expert_parallel": [1, 2, 4] if job.model.moe else [1],
    }
    if degrees["pipeline_parallel"] != [1] and rng.random() < 0.4:
        opened.add("virtual_pipeline_stages")
    kept = {key: values[: rng.choice([2, 2, 3])] if key in opened else values[:1] for key, values in every.items()}
    return {"backend": kept.pop("backend"), **degrees, **kept}


def varied(seed: int) -> Varied:
    """One instance; small enough that every configuration of it can be priced."""
    rng = random.Random(seed)
    gpus = rng.choice([1, 2, 4, 4])
    job = Job(model=model(rng), cluster=ClusterSpec(pools=(pool(rng, gpus),)), training=training(rng))
    counts = tuple(n for n in (1, 2, 3, 4) if n <= gpus and rng.random() < 0.5)
    return Varied(
        job=job,
        choices=_choices(rng, job),
        counts=tuple(sorted({*counts, gpus})),
        objectives=tuple(rng.sample(OBJECTIVES, k=rng.choice([1, 1, 2, 3]))),
        tolerance=rng.choice([0.0, 0.0, 0.0, 0.05, 0.4]),
        risk=rng.choice([0.01, 1e-4, 0.2]),
    )


def exact(case: Varied) -> Varied:
    """The same without a tolerance."""
    return replace(case, tolerance=0.0)
