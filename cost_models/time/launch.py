"""The CPU launch floor: a pass cannot end before the host has issued its kernels."""

from collections.abc import Mapping
from typing import Any, Final

from cost_models.arrays import choose
from cost_models.specs.model import LayerKind
from cost_models.time.frame import Frame

HOSTS: Final[Mapping[str, str]] = {"gb200": "grace", "gb300": "grace"}
"""Processors of devices that come soldered to one; others are told apart by the family of servers they are sold in."""


def pass_seconds(frame: Frame, kind: LayerKind) -> Any:
    """Host time to issue the kernels of one layer's forward. [s]

    25 to 40 operators of 10 to 25 microseconds each, so a property of framework and host, not of the GPU. Routing
    issues many small kernels, 4-bit weights one dequantisation per matrix, each tensor-parallel peer a few more, each
    step around the context-parallel ring its own attention and correction.
    CUDA graphs replay the kernels of a layer with few calls; torch.compile fuses some away. Experts get another number
    of tokens each step, so that only a graph of the whole step, over padded buffers, takes them in. Exchange beside
    compute cuts a layer into parts that are launched one by one, its weight gradients apart.
    Source: PyTorch, arXiv:1912.01703 section 5.1 (host queues kernels ahead of the device); Megatron-LM
    `core/transformer/cuda_graphs.py`, `core/models/common/model_chunk_schedule_plan.py`; values fitted.
    """
    base = frame.by_backend("launch_floor_seconds")
    experts = (frame.factor("moe_launch_factor") - 1) * base if kind.mlp == "moe" else 0.0
    if frame.job.training.method == "qlora":
        base = base + frame.factor("launch_seconds_quantized")
    base = base + (frame.tp - 1) * frame.factor("launch_seconds_per_peer")
    base = base + (frame.cp - 1) * frame.factor("launch_seconds_per_ring_step")
    graph = choose(frame.column("cuda_graph") > 0, frame.factor("cuda_graph_launch"), 1.0)
    compiled = choose(frame.column("compile") > 0, frame.factor("compiled_launch"), 1.0)
    beside = frame.column("expert_overlap") > 0
    parts = choose(beside, frame.factor("expert_overlap_launch"), 1.0)
    return host_factor(frame) * parts * (base * graph * compiled + experts * choose(beside, graph, 1.0))


def host_factor(frame: Frame) -> float:
    """Launch time on the processors that come with a device over that on the reference host.

    One thread launches, so that its speed counts: a T4 is rented with shares of a 2 GHz Xeon, GB200 has Grace.
    """
    device = frame.device
    kinds = (HOSTS[device.name],) if device.name in HOSTS else ()
    return frame.factor("host_launch_factor", *kinds, device.family, "default")


def backward_launch_factor(frame: Frame) -> float:
    """Host time of a backward pass over that of the forward."""
    return frame.factor("backward_launch_factor")
