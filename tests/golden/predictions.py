"""What the cost models predict over a wide grid of jobs and configurations, as a table whose changes are reviewed.

Refresh on purpose, and say in the commit why predictions moved: `python -m tests.golden.predictions`.
"""

import csv
import io
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, Final

from cost_models import catalog
from cost_models.errors import BrokenRule, MissingCalibration
from cost_models.job import Job
from cost_models.ledger import estimate
from cost_models.pools import pool
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.configuration import BackendChoice, Configuration, RecomputeCounts, Stage
from cost_models.specs.training import LoraSpec, TrainingSpec

TABLE: Final = Path(__file__).parent / "predictions.csv"
COLUMNS: Final = ("model", "device", "configuration", "step_seconds", "allocated_gib", "conservative_gib", "host_gib")
JOBS: Final = (
    ("gpt2", 1024), ("llama-2-7b", 4096), ("llama-3-70b", 8192), ("gemma-2-9b", 8192), ("mixtral-8x7b", 4096),
    ("deepseek-v3", 4096),
)  # fmt: skip
DEVICES: Final = ("a100-sxm-80gb", "h100-sxm-80gb", "b200", "mi300x", "rtx-4090")
SHAPES: Final[dict[str, dict[str, Any]]] = {
    "ddp": {"backend": "ddp"},
    "fsdp zero3 sdpa": {"backend": "fsdp", "zero_stage": 3, "attention": "sdpa"},
    "fsdp zero3 full recompute": {"backend": "fsdp", "zero_stage": 3, "recompute": "full"},
    "deepspeed zero2 mbs4": {"backend": "deepspeed", "zero_stage": 2, "micro_batch_size": 4},
    "deepspeed zero3 offload": {"backend": "deepspeed", "zero_stage": 3, "offloaded": True},
    "megatron tp8 zero1 sp": {
        "backend": "megatron", "zero_stage": 1, "tensor_parallel": 8, "sequence_parallel": True,
        "cross_entropy": "vocab_parallel",
    },
    "megatron tp2 pp4 selective": {
        "backend": "megatron", "zero_stage": 1, "tensor_parallel": 2, "pipeline_parallel": 4, "recompute": "selective",
        "sequence_parallel": True, "cross_entropy": "vocab_parallel",
    },
    "megatron cp2 ep8": {
        "backend": "megatron", "zero_stage": 1, "context_parallel": 2, "expert_parallel": 8,
        "cross_entropy": "vocab_parallel",
    },
    "megatron-deepspeed tp4 pp2 full": {
        "backend": "megatron-deepspeed", "tensor_parallel": 4, "pipeline_parallel": 2, "recompute": "full",
        "attention": "eager", "cross_entropy": "vocab_parallel", "precision": "fp16",
    },
    "lora fsdp": {"backend": "fsdp", "zero_stage": 3, "lora": True},
}  # fmt: skip
_GPUS: Final = 16


def _configuration(layers: int, shape: dict[str, Any]) -> Configuration:
    options = dict(shape)
    mode, offloaded = options.pop("recompute", "none"), options.pop("offloaded", False)
    backend, lora = options.pop("backend"), options.pop("lora", False)
    pipeline = options.get("pipeline_parallel", 1)
    split = [layers // pipeline + (1 if stage < layers % pipeline else 0) for stage in range(pipeline)]
    taken = options.get("tensor_parallel", 1) * pipeline * options.get("context_parallel", 1)
    return Configuration(
        backend=BackendChoice(name=backend),
        data_parallel=_GPUS // taken,
        gradient_accumulation_steps=8,
        stages=tuple(
            Stage(layers=n, recompute=RecomputeCounts(**{mode: n}), optimizer_layers_offloaded=n if offloaded else 0)
            for n in split
        ),
        lora=LoraSpec(rank=16) if lora else None,
        **{"attention": "flash", **options},
    )


def rows() -> Iterator[dict[str, str]]:
    """Every cell of the grid; what the models refuse says so."""
    for (name, length), device, (label, shape) in product(JOBS, DEVICES, SHAPES.items()):
        model = catalog.model(name)
        configuration = _configuration(model.num_hidden_layers, shape)
        method = "lora" if configuration.lora is not None else "full"
        training = TrainingSpec(
            method=method, sequence_length=length, lora=configuration.lora,
            global_batch_size=configuration.global_batch_size,
        )  # fmt: skip
        cluster = ClusterSpec(pools=(pool(device=device, nodes=2, gpus_per_node=8),))
        values = _values(Job(model=model, cluster=cluster, training=training), configuration)
        yield dict(zip(COLUMNS, (name, device, label, *values), strict=True))


def _values(job: Job, configuration: Configuration) -> tuple[str, ...]:
    try:
        found = estimate(job, configuration, catalog.calibration())
    except (BrokenRule, MissingCalibration) as error:
        return type(error).__name__, "", "", ""
    memory = found.memory
    sizes = (memory.allocated_bytes, memory.conservative_bytes, memory.host_node_bytes)
    return (f"{found.time.step_seconds:.5g}", *(f"{size / 2**30:.5g}" for size in sizes))


def text() -> str:
    """The table as CSV."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows())
    return out.getvalue()


if __name__ == "__main__":
    TABLE.write_text(text(), encoding="utf-8")
