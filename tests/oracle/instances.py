"""Seeded random small jobs with explicit choices: every decision is a short closed list."""

import random
from dataclasses import dataclass
from typing import Any

from cost_models import catalog
from cost_models.job import Job
from cost_models.specs.cluster import ClusterSpec, LinkSpec, NodePool
from cost_models.specs.model import LayerKind, ModelSpec, MoeSpec
from cost_models.specs.training import TrainingSpec
from solver.domains import Domains
from solver.problem import Problem

GIB = 2**30


@dataclass(frozen=True)
class Instance:
    """One job and its choices."""

    job: Job
    choices: dict[str, list[Any]]
    gpus: int

    def problem(self, **extra: Any) -> Problem:
        """The same, as the solver takes it."""
        offered: dict[str, Any] = {key: tuple(values) for key, values in self.choices.items()}
        offered |= {"gpus": (self.gpus,), "data_parallel": None, "gradient_accumulation_steps": None}
        return Problem(job=self.job, calibration=catalog.calibration(), domains=Domains(offered), **extra)


def model(rng: random.Random) -> ModelSpec:
    """A dense or sparse model of two to four layers, some with several layer kinds."""
    layers, heads = rng.choice([2, 3, 4]), rng.choice([16, 32])
    sparse = rng.random() < 0.25
    kinds: tuple[LayerKind, ...] = ()
    if sparse and rng.random() < 0.5:
        kinds = (LayerKind(mlp="dense"), *[LayerKind(mlp="moe")] * (layers - 1))
    elif not sparse and rng.random() < 0.2:
        kinds = tuple(LayerKind(attention="sliding" if i % 2 else "full") for i in range(layers))
    return ModelSpec(
        hidden_size=heads * 128,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=rng.choice([2, 8, heads]),
        head_dim=128,
        intermediate_size=heads * 352,
        vocab_size=rng.choice([32000, 128256]),
        tie_word_embeddings=rng.random() < 0.2,
        sliding_window=1024 if any(k.attention == "sliding" for k in kinds) else None,
        layers=kinds,
        moe=MoeSpec(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=heads * 128) if sparse else None,
    )


def _some(rng: random.Random, values: list[Any], most: int) -> list[Any]:
    return sorted(rng.sample(values, k=rng.randint(1, min(most, len(values)))), key=str)


def instance(seed: int) -> Instance:
    """One instance; small enough that every configuration of it can be priced."""
    rng = random.Random(seed)
    gpus = rng.choice([1, 2, 4])
    device = catalog.device(rng.choice(["a100-sxm-80gb", "rtx-4090", "h100-sxm-80gb", "v100-sxm-32gb"]))
    spec = model(rng)
    backend = rng.choice(["deepspeed", "megatron", "megatron", "fsdp", "fsdp", "ddp", "megatron-deepspeed"])
    usable = min(int(2 ** rng.uniform(2.5, 6.3) * GIB), device.usable_memory_bytes)
    device = device.model_copy(update={"usable_memory_bytes": usable})
    per_node = rng.choice([n for n in (1, 2, 4) if gpus % n == 0])
    pool = NodePool(
        device=device,
        nodes=gpus // per_node,
        gpus_per_node=per_node,
        intra_node_link=LinkSpec(bandwidth=device.link_bandwidth),
        inter_node_link=LinkSpec(bandwidth=device.inter_node_bandwidth),
        link_domain=device.link_domain,
        host_memory_bytes=int(2 ** rng.uniform(4.5, 8) * GIB),
        price_per_gpu_hour=2.0,
    )
    training = TrainingSpec(
        sequence_length=rng.choice([1024, 2048, 4096]),
        global_batch_size=rng.choice([2, 4, 8]),
        method=rng.choice(["full", "full", "full", "lora"]),
    )
    half = "bf16" if "bf16" in device.peak_flops else "fp16"
    zero = {"megatron": [0, 1], "fsdp": [2, 3], "ddp": [0], "deepspeed": [0, 1, 2, 3], "megatron-deepspeed": [0, 1, 2]}[
        backend
    ]
    offload = rng.random() < 0.35 and backend != "ddp"
    losses = {"megatron": ["fused", "vocab_parallel"], "megatron-deepspeed": ["vocab_parallel"]}.get(
        backend, ["eager", "fused"]
    )
    choices: dict[str, list[Any]] = {
        "backend": [backend],
        "tensor_parallel": _some(rng, [1, 2], 2),
        "context_parallel": [1] if rng.random() < 0.8 else [1, 2],
        "pipeline_parallel": _some(rng, [1, 2, 4], 3),
        "virtual_pipeline_stages": [1] if rng.random() < 0.6 else [1, 2],
        "expert_parallel": [1, 2] if spec.moe else [1],
        "expert_tensor_parallel": [1],
        "micro_batch_size": _some(rng, [1, 2], 2),
        "zero_stage": _some(rng, zero, 2),
        "sequence_parallel": [False, True] if backend in ("megatron", "fsdp") else [False],
        "recompute_interval": [1] if rng.random() < 0.7 else [1, 2],
        "optimizer_offload": [False, True] if offload else [False],
        "parameter_offload": [False, True] if offload and backend != "megatron" else [False],
        "activation_offload": [False],
        "communication_overlap": [True],
        "expert_overlap": [False],
        "fused_kernels": [True],
        "cuda_graph": [False],
        "compile": [False],
        "gradient_compression": ["none"] if rng.random() < 0.7 else ["none", "bf16"],
        "precision": [half],
        "attention": ["flash" if half == "bf16" else "sdpa"],
        "cross_entropy": _some(rng, losses, 1),
    }
    if backend == "megatron" and half == "fp16":
        choices["attention"] = ["eager"]
    return Instance(Job(model=spec, cluster=ClusterSpec(pools=(pool,)), training=training), choices, gpus)
