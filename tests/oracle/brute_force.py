"""An independent brute force: own legality in plain Python, own enumeration of complete configurations, one price each.

Nothing of `solver` is imported here. Every configuration is priced whole by the scalar ledger of the cost models.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cost_models.calibration import Calibration
from cost_models.job import Job
from cost_models.memory import memory_ledger
from cost_models.specs.configuration import BackendChoice, Configuration, RecomputeCounts, Stage
from cost_models.specs.model import ModelSpec
from cost_models.time import time_ledger

Choices = Mapping[str, Sequence[Any]]


def runs_anywhere(job: Job, c: Mapping[str, Any]) -> bool:
    """Arithmetic of the degrees."""
    model, s = job.model, job.training.sequence_length
    tp, cp, pp, v = c["tensor_parallel"], c["context_parallel"], c["pipeline_parallel"], c["virtual_pipeline_stages"]
    ep, etp, dp, m = (
        c["expert_parallel"],
        c["expert_tensor_parallel"],
        c["data_parallel"],
        c["gradient_accumulation_steps"],
    )
    experts = model.moe.num_experts if model.moe else 1
    heads, kv = model.num_attention_heads, model.num_key_value_heads
    if heads % tp or model.hidden_size % tp or (kv % tp and tp % kv):
        return False
    if cp > 1 and s % (2 * cp):
        return False
    if c["sequence_parallel"] and (tp == 1 or s % (tp * cp)):
        return False
    if experts % ep or (dp * cp) % ep or (etp != 1 and (experts == 1 or etp != tp)):
        return False
    if pp * v > model.num_hidden_layers:
        return False
    if v > 1 and (pp == 1 or model.num_hidden_layers % (pp * v) or m % pp):
        return False
    if c["gradient_compression"] != "none" and dp == 1:
        return False
    flops = job.device.peak_flops
    if (c["precision"] == "fp8" and "fp8" not in flops) or (c["precision"] == "bf16" and "bf16" not in flops):
        return False
    return not (job.training.method == "qlora" and (tp > 1 or pp > 1 or cp > 1 or ep > 1))


def _deepspeed(job: Job, c: Mapping[str, Any]) -> bool:
    tp, pp, zero = c["tensor_parallel"], c["pipeline_parallel"], c["zero_stage"]
    if (pp > 1 and zero > 1) or (tp > 1 and (zero == 3 or pp > 1 or tp > job.model.num_key_value_heads)):
        return False
    if c["sequence_parallel"] or c["context_parallel"] > 1 or c["virtual_pipeline_stages"] > 1:
        return False
    if c["expert_tensor_parallel"] > 1 or (c["expert_parallel"] > 1 and pp > 1):
        return False
    if c["optimizer_offload"] and (zero == 0 or pp > 1):
        return False
    if c["parameter_offload"] and not (zero == 3 and c["optimizer_offload"]):
        return False
    if c["gradient_compression"] == "int8" and (zero != 3 or c["expert_parallel"] > 1):
        return False
    known = c["gradient_compression"] in ("none", "int8") and c["precision"] != "fp8"
    return known and c["cross_entropy"] in ("eager", "fused") and not c["activation_offload"] and not c["cuda_graph"]


def _plain_gpt(model: ModelSpec) -> bool:
    odd = model.parallel_residual or model.position_embedding == "alibi" or model.embedding_norm or model.head_bias
    odd = odd or model.embedding_projection is not None or model.attention_softcap or model.logit_softcap
    return not odd and model.norms_per_layer == 2 and model.norm_affine and model.qk_norm != "full"


def _megatron(job: Job, c: Mapping[str, Any]) -> bool:
    if c["zero_stage"] > 2 or (c["zero_stage"] > 1 and c["pipeline_parallel"] > 1):
        return False
    if job.training.method != "full" or not _plain_gpt(job.model):
        return False
    if job.model.moe and c["tensor_parallel"] > 1 and not c["sequence_parallel"]:
        return False
    if c["optimizer_offload"] and c["zero_stage"] != 1:
        return False
    if c["parameter_offload"] or c["activation_offload"] or c["compile"] or c["recompute_interval"] > 1:
        return False
    if c["gradient_compression"] == "bf16" and c["precision"] not in ("bf16", "fp8"):
        return False
    known = c["gradient_compression"] in ("none", "bf16") and c["cross_entropy"] in ("vocab_parallel", "fused")
    return known and c["attention"] in ("flash", "eager")


def _fsdp(job: Job, c: Mapping[str, Any]) -> bool:
    zero, pp = c["zero_stage"], c["pipeline_parallel"]
    if job.training.method != "full" and pp > 1:
        return False
    if zero < 2 or (pp > 1 and zero == 3) or c["precision"] == "fp16":
        return False
    if c["optimizer_offload"] != c["parameter_offload"] or (c["parameter_offload"] and pp > 1):
        return False
    if c["gradient_compression"] != "none" and not (c["gradient_compression"] == c["precision"] == "bf16"):
        return False
    if c["cross_entropy"] == "vocab_parallel" and c["tensor_parallel"] == 1:
        return False
    return not c["activation_offload"] and not c["cuda_graph"]


def _ddp(job: Job, c: Mapping[str, Any]) -> bool:
    del job
    degrees = ("tensor_parallel", "pipeline_parallel", "context_parallel", "expert_parallel")
    if (
        any(c[d] > 1 for d in degrees)
        or c["zero_stage"]
        or c["optimizer_offload"]
        or c["parameter_offload"]
        or c["activation_offload"]
    ):
        return False
    known = c["gradient_compression"] in ("none", "fp16", "bf16", "powersgd") and c["precision"] != "fp8"
    return known and c["cross_entropy"] != "vocab_parallel" and not c["cuda_graph"]


def _megatron_deepspeed(job: Job, c: Mapping[str, Any]) -> bool:
    zero, pp = c["zero_stage"], c["pipeline_parallel"]
    if (pp > 1 and zero > 1) or c["sequence_parallel"] or c["context_parallel"] > 1 or c["virtual_pipeline_stages"] > 1:
        return False
    if c["expert_tensor_parallel"] > 1 or (c["expert_parallel"] > 1 and pp > 1):
        return False
    if c["optimizer_offload"] and (zero == 0 or pp > 1):
        return False
    if c["parameter_offload"] and not (zero == 3 and c["optimizer_offload"]):
        return False
    known = c["gradient_compression"] == "none" and c["precision"] != "fp8" and c["cross_entropy"] == "vocab_parallel"
    plain = not c["activation_offload"] and not c["cuda_graph"] and not c["compile"]
    return known and plain and job.training.method == "full" and job.training.optimizer in ("adamw", "sgd")


_BACKENDS = {
    "deepspeed": _deepspeed,
    "megatron": _megatron,
    "fsdp": _fsdp,
    "ddp": _ddp,
    "megatron-deepspeed": _megatron_deepspeed,
}


def compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Ways to write `total` as an ordered sum of `parts` positive integers."""
    for cuts in itertools.combinations(range(1, total), parts - 1):
        edges = (0, *cuts, total)
        yield tuple(b - a for a, b in itertools.pairwise(edges))


def _layer_splits(c: Mapping[str, Any], layers: int) -> Iterator[tuple[int, ...]]:
    pp, backend = c["pipeline_parallel"], c["backend"]
    free = backend in ("megatron", "fsdp") and c["virtual_pipeline_stages"] == 1
    if free:
        yield from compositions(layers, pp)
    elif layers % pp == 0:
        yield (layers // pp,) * pp


def _recomputes(c: Mapping[str, Any], split: tuple[int, ...]) -> Iterator[tuple[tuple[int, int], ...]]:
    """(full, selective) of every stage."""
    backend, v = c["backend"], c["virtual_pipeline_stages"]
    if backend == "megatron-deepspeed" or (backend == "deepspeed" and c["pipeline_parallel"] > 1):
        yield tuple((0, 0) for _ in split)
        yield tuple((0, n) for n in split)
        yield tuple((n, 0) for n in split)
        return
    if backend == "megatron":
        yield tuple((0, n) for n in split)
        for full in range(0, min(split) + 1, v):
            yield tuple((full, 0) for _ in split)
        return
    both = backend in ("fsdp", "ddp")

    def of(n: int) -> list[tuple[int, int]]:
        pairs = [(f, s) for f in range(n + 1) for s in range(n + 1 - f)]
        return pairs if both else [(f, s) for f, s in pairs if f == 0 or s == 0]

    yield from itertools.product(*(of(n) for n in split))


def _offloads(c: Mapping[str, Any], split: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    if not c["optimizer_offload"]:
        yield (0,) * len(split)
    elif c["backend"] == "megatron" or (
        c["backend"] == "deepspeed" and c["pipeline_parallel"] == 1 and c["zero_stage"] == 3
    ):
        yield from ((n,) * len(split) for n in range(1, min(split) + 1))
    else:
        yield split


def configurations(job: Job, choices: Choices, gpus: int) -> Iterator[Configuration]:
    """Every complete legal configuration on exactly `gpus` devices."""
    batch = job.training.batch_range
    for values in itertools.product(*choices.values()):
        c = dict(zip(choices, values, strict=True))
        ranks = c["tensor_parallel"] * c["context_parallel"] * c["pipeline_parallel"]
        if gpus % ranks:
            continue
        c["data_parallel"] = gpus // ranks
        step = c["micro_batch_size"] * c["data_parallel"]
        if c["pipeline_parallel"] == 1 and c["virtual_pipeline_stages"] > 1:
            continue
        for m in range(1, batch.max // step + 1):
            c["gradient_accumulation_steps"] = m
            if batch.min <= step * m <= batch.max and runs_anywhere(job, c) and _BACKENDS[c["backend"]](job, c):
                yield from _complete(job, c)


def _complete(job: Job, c: Mapping[str, Any]) -> Iterator[Configuration]:
    rest = {k: x for k, x in c.items() if k not in ("backend", "recompute_interval", "optimizer_offload")}
    for split in _layer_splits(c, job.model.num_hidden_layers):
        for recompute in _recomputes(c, split):
            if c["recompute_interval"] > 1 and not any(full for full, _ in recompute):
                continue
            for offloaded in _offloads(c, split):
                stages = tuple(
                    Stage(
                        layers=n,
                        recompute=RecomputeCounts(
                            none=n - f - s, selective=s, full=f, interval=c["recompute_interval"]
                        ),
                        optimizer_layers_offloaded=o,
                    )
                    for n, (f, s), o in zip(split, recompute, offloaded, strict=True)
                )
                yield Configuration(
                    backend=BackendChoice(name=c["backend"]),
                    stages=stages,
                    optimizer=job.training.optimizer,
                    lora=job.training.adapters,
                    **rest,
                )


@dataclass(frozen=True)
class Best:
    """The best configuration by brute force."""

    value: float
    configuration: Configuration


def best_step(
    job: Job, choices: Choices, calibration: Calibration, gpus: int, *, per_sequence: bool = False
) -> tuple[Best | None, int]:
    """Fastest configuration that fits, and how many there were. Memory is only priced where the time would win."""
    best, seen = None, 0
    for c in configurations(job, choices, gpus):
        seen += 1
        value = time_ledger(job, c, calibration).step_seconds / (c.global_batch_size if per_sequence else 1)
        if (best is None or value < best.value) and memory_ledger(job, c, calibration, oom_risk=0.01).fits:
            best = Best(value, c)
    return best, seen


def least_memory(job: Job, choices: Choices, calibration: Calibration, gpus: int) -> float | None:
    """Least allocated peak of a configuration that fits."""
    ledgers = (memory_ledger(job, c, calibration, oom_risk=0.01) for c in configurations(job, choices, gpus))
    return min((ledger.allocated_bytes for ledger in ledgers if ledger.fits), default=None)
