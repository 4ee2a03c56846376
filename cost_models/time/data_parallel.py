"""Data parallelism: gradient reduction, parameter gathers, and what of them compute can cover."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cost_models import catalog
from cost_models.arrays import choose
from cost_models.calibration import Calibration
from cost_models.job import Job
from cost_models.parameters import Split, Weight, local_parameters, total_parameters
from cost_models.specs.choices import BACKENDS, PRECISIONS
from cost_models.specs.configuration import Configuration
from cost_models.strategy import Strategy
from cost_models.time.collectives import (
    Group,
    all_gather_seconds,
    all_reduce_seconds,
    expert_replica_group,
    reduce_scatter_seconds,
    replica_group,
)
from cost_models.time.compression import kernel_seconds, wire_bytes
from cost_models.time.frame import Frame, lookup, once, overlapped


@dataclass(frozen=True, slots=True)
class Local:
    """Parameters of one rank before ZeRO sharding, dense and expert apart: they are reduced over different ranks."""

    dense: Any
    experts: Any


def local(frame: Frame, weights: Iterable[Weight]) -> Local:
    """Count `weights` on one rank. [parameters]"""
    weights = tuple(weights)
    degrees = {
        "tensor_parallel": frame.strategy.tensor_parallel,
        "expert_parallel": frame.ep,
        "expert_tensor_parallel": frame.etp,
    }
    dense = local_parameters(frame.model, (w for w in weights if w.split is not Split.EXPERT), **degrees)
    experts = local_parameters(frame.model, (w for w in weights if w.split is Split.EXPERT), **degrees)
    return Local(dense, experts)


@once
def reduce_bytes(frame: Frame) -> Any:
    """Bytes per parameter of a gradient reduction, after compression. [bytes]

    The width before compression is a fact of the framework, the same that its memory ledger reads.
    """
    return wire_bytes(frame, lookup(frame.strategy.backend, BACKENDS, lambda name: _reduced_width(frame, name)))


def _reduced_width(frame: Frame, backend: str) -> Any:
    widths = {str(precision): layout.reduce for precision, layout in catalog.framework(backend).layouts.items()}
    # A precision that the back end cannot run is no candidate; legality drops the row.
    return lookup(frame.strategy.precision, PRECISIONS, lambda precision: widths.get(precision, 4.0))


@once
def gather_bytes(frame: Frame) -> Any:
    """Bytes per parameter of a parameter gather. [bytes]

    FSDP casts the shards of fp8 training before it gathers them.
    """
    stored = frame.factor("quantized_bytes_per_parameter") if frame.job.training.method == "qlora" else 2.0
    cast = frame.precision_is("fp8") & frame.backend_is("fsdp")
    gathered = choose(cast, np.minimum(frame.factor("gathered_bytes_per_parameter", "fp8"), stored), stored)
    return choose(frame.precision_is("fp32"), 4.0, gathered)


@dataclass(frozen=True, slots=True)
class Traffic:
    """Collectives of some weights: seconds of one gather, one reduce-scatter."""

    gather: Any
    reduce: Any


def traffic(frame: Frame, parameters: Local, trained: Local) -> Traffic:
    """One gather of `parameters` and one reduce-scatter of the gradients of `trained`. [s]"""
    return Traffic(
        gather=_over_replicas(frame, all_gather_seconds, gather_bytes(frame), parameters),
        reduce=_over_replicas(frame, reduce_scatter_seconds, reduce_bytes(frame), trained),
    )


def _over_replicas(frame: Frame, seconds: Callable[[Group, Any], Any], width: Any, count: Local) -> Any:
    """A collective of `count` parameters of `width` bytes: experts have replicas of their own. [s]"""

    def one(group: Group, size: Any) -> Any:
        return choose((group.size > 1) & (size > 0), seconds(group, size), 0.0)

    return one(replica_group(frame), width * count.dense) + one(expert_replica_group(frame), width * count.experts)


@once
def gathers_per_pass(frame: Frame) -> tuple[Any, Any]:
    """Parameter gathers of a micro-batch's forward and backward. [gathers]

    ZeRO-3 gathers before either pass; FSDP that shards gradients only keeps the parameters from forward to backward
    and gathers them again for the next micro-batch. With a pipeline they stay for the step.
    Source: arXiv:1910.02054 section 7.2.2; PyTorch `ShardingStrategy` (FULL_SHARD, SHARD_GRAD_OP).
    """
    once = frame.backend_is("fsdp") & (frame.zero == 2) & (frame.pp == 1)
    return choose(frame.sharded | once, 1.0, 0.0), choose(frame.sharded, 1.0, 0.0)


@once
def reduces_per_micro_batch(frame: Frame) -> Any:
    """1 where gradients are reduce-scattered after every micro-batch, so that only a shard is accumulated.

    Source: arXiv:1910.02054 section 5.2 (P_os+g); DeepSpeed `runtime/zero/stage_1_and_2.py`; FSDP without `no_sync`.
    """
    early = frame.backend_is("fsdp", "deepspeed") & (frame.zero == 2) & (frame.pp == 1)
    return choose(frame.sharded | early, 1.0, 0.0)


@dataclass(frozen=True, slots=True)
class Cover:
    """Seconds of one micro-batch's forward and backward that communication may still run beside."""

    forward: Any
    backward: Any


def step_seconds(frame: Frame, parameters: Local, trained: Local, cover: Cover) -> tuple[Any, Any]:
    r"""Exposed and hidden data-parallel communication once a step, of one layer or one stage's ends. [s]

    .. math:: e = \max(\sigma g,\; g - f)

    All-reduce without ZeRO; reduce-scatter and all-gather with it (equal volume). Reductions run beside the last
    micro-batch's backward, gathers of the new parameters beside the next forward: of one micro-batch each, however
    many a step has, so that what exceeds it waits; and a share sigma is exposed whatever the compute.
    Source: volumes, arXiv:1910.02054 section 7; gradients are complete in the last backward only, PyTorch DDP,
    arXiv:2006.15704 section 3.2.3; Megatron-LM `overlap_grad_reduce`, `overlap_param_gather`; share fitted per back
    end.
    """
    cost = traffic(frame, parameters, trained)
    whole = _over_replicas(frame, all_reduce_seconds, reduce_bytes(frame), trained)
    reduced = choose(reduces_per_micro_batch(frame) > 0, 0.0, choose(frame.zero == 0, whole, cost.reduce))
    kept = choose((frame.zero >= 3) & (frame.pp > 1), cost.gather, 0.0)
    updated = choose((frame.zero == 1) | (frame.zero == 2), _updated_gather(frame, trained), 0.0)
    gathered = choose(frame.zero >= 3, kept, updated)
    gathered = choose(frame.backend_is("fsdp") & (frame.zero == 2) & (frame.pp == 1), 0.0, gathered)
    share = choose(frame.overlap, frame.by_backend("data_parallel_exposed"), 1.0)
    late, beside_backward = overlapped(cover.backward, reduced, share, 0.0)
    early, beside_forward = overlapped(cover.forward, gathered, share, 0.0)
    compress = choose(frame.replicas > 1, kernel_seconds(frame, trained.dense + trained.experts), 0.0)
    return late + early + compress, beside_backward + beside_forward


def sent_gradient_bytes(job: Job, configuration: Configuration, calibration: Calibration) -> float:
    r"""Bytes that one process sends to reduce the gradients of a step, all weights trained and held whole. [bytes]

    .. math:: V = 2\,\frac{n-1}{n}\, N b

    for N parameters of b bytes each on the wire over n ranks: both halves of a ring.
    Source: Patarasuk and Yuan, J. Parallel Distrib. Comput. 69 (2009) section 3.
    """
    frame = Frame(job=job, strategy=Strategy.of(configuration), calibration=calibration)
    n = configuration.data_parallel
    return float(2 * (n - 1) / n * reduce_bytes(frame)) * total_parameters(job.model)


def _updated_gather(frame: Frame, trained: Local) -> Any:
    width = choose(frame.precision_is("fp32"), 4.0, 2.0)
    return _over_replicas(frame, all_gather_seconds, width, trained)
