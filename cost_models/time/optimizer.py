"""Gradients summed over micro-batches, and the optimizer step on the device."""

from typing import Any

from cost_models.arrays import choose
from cost_models.time.data_parallel import Local
from cost_models.time.frame import Frame
from cost_models.time.gemm import matmul_seconds, sustained_rate


def shards(frame: Frame, count: Local) -> Any:
    """Parameters whose states one rank updates. [parameters]

    Source: ZeRO partitions over data-parallel ranks, arXiv:1910.02054 section 5.1; context-parallel ranks hold the
    same weights and take part.
    """
    dense = choose(frame.zero >= 1, frame.replicas, 1.0)
    experts = choose(frame.zero >= 1, frame.expert_replicas, 1.0)
    return count.dense / dense + count.experts / experts


def accumulation_seconds(frame: Frame, trained: Local) -> Any:
    r"""Adding the gradients of one micro-batch to the sum, or handing them to their reduction. [s]

    .. math:: b\,\Psi / \text{HBM}

    Whatever the tokens are, so that small micro-batches pay for it.
    Source: PyTorch `AccumulateGrad` (gradient and sum read, sum written); Megatron-LM `gradient_accumulation_fusion`
    (the product for the weights reads and writes an fp32 sum instead of writing 16 bits); bytes fitted around these.
    """
    count = trained.dense + trained.experts
    return frame.by_backend("accumulation_bytes_per_parameter") * count / frame.hbm


def update_seconds(frame: Frame, trained: Local) -> Any:
    r"""Reading and writing the states of the trained parameters. [s]

    .. math:: b\,\Psi / (N_d\,\text{HBM})

    Muon adds Newton-Schulz iterations: five, each about 6 n FLOPs per element of an n x n matrix.
    Source: bytes per parameter by optimizer in the calibration; Muon, arXiv:2502.16982 section 2.
    """
    count = shards(frame, trained)
    name = frame.job.training.optimizer
    seconds = frame.factor("optimizer_bytes_per_parameter", name) * count / frame.hbm
    if name == "muon":
        flops = frame.factor("muon_flops_per_parameter_and_width") * frame.model.hidden_size * count
        seconds = seconds + matmul_seconds(flops, sustained_rate(frame, sixteen_bit=True))
    return seconds


def overhead_seconds(frame: Frame) -> Any:
    """What a step costs whatever its size: data loading, logging, gradient norm, host synchronisation. [s]"""
    return frame.by_backend("step_overhead_seconds")
