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
from cost_models.time import time_ledger
from tests.oracle.rules import legal

Choices = Mapping[str, Sequence[Any]]


def compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Ways to write `total` as an ordered sum of `parts` positive integers."""
    for cuts in itertools.combinations(range(1, total), parts - 1):
        edges = (0, *cuts, total)
        yield tuple(b - a for a, b in itertools.pairwise(edges))


def _layer_splits(c: Mapping[str, Any], layers: int) -> Iterator[tuple[int, ...]]:
    pp, backend = c["pipeline_parallel"], c["backend"]
    v = c["virtual_pipeline_stages"]
    if backend in ("megatron", "fsdp") and v == 1:
        yield from compositions(layers, pp)
    elif layers % (pp * v) == 0:
        yield (layers // pp,) * pp
    elif backend == "megatron":
        yield from _short_ends(layers, pp, v)


def _short_ends(layers: int, pp: int, v: int) -> Iterator[tuple[int, ...]]:
    """Interleaved stages of equal chunks, but the first chunk of all and the last one hold fewer layers.

    The last one gives the odd layer.
    """
    longest = -(-layers // pp)
    for short in range(longest // v + 1):
        for more in (0, 1):
            if longest * pp - 2 * short - more == layers and short + more <= longest // v:
                yield (longest - short, *[longest] * (pp - 2), longest - short - more)


def _recomputes(c: Mapping[str, Any], split: tuple[int, ...]) -> Iterator[tuple[tuple[int, int], ...]]:
    """(full, selective) of every stage."""
    backend, v = c["backend"], c["virtual_pipeline_stages"]
    if backend == "megatron-deepspeed" or (backend == "deepspeed" and c["pipeline_parallel"] > 1):
        yield tuple((0, 0) for _ in split)
        yield tuple((0, n) for n in split)
        yield tuple((n, 0) for n in split)
        return
    if backend == "megatron" and v > 1 and sum(split) % (len(split) * v):
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
            if batch.min <= step * m <= batch.max and legal(job, c):
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
