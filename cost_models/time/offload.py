"""Offload to host memory over PCIe: optimizer states with CPU Adam, parameters, activations."""

from typing import Any

import numpy as np

from cost_models.arrays import choose
from cost_models.time.data_parallel import Local, gather_bytes
from cost_models.time.frame import Frame, once
from cost_models.time.optimizer import shards, update_seconds


def pcie_rate(frame: Frame) -> Any:
    """Host-to-device rate of one device when all of a node copy at once. [bytes/s]"""
    return frame.device.pcie_bandwidth * frame.factor("pcie_efficiency")


def optimizer_offload_seconds(frame: Frame, trained: Local) -> Any:
    r"""What a step gains in time when these weights' states live on the host. [s]

    .. math:: \Psi_r (b_g + b_w) / \text{PCIe} + \Psi_r\, g\, \tau_{cpu} - t_{gpu}

    Gradients go down, new parameters come back, Adam runs on the node's CPUs, which its g devices share; the update
    that the device no longer makes is saved.
    Source: ZeRO-Offload, arXiv:2101.06840 sections 4 and 5; tau from its CPU-Adam table.
    """
    mine = shards(frame, trained)
    copied = mine * (frame.factor("offloaded_gradient_bytes") + 2.0) / pcie_rate(frame)
    ranks = np.minimum(frame.tp * frame.cp * frame.pp * frame.dp, frame.job.pool.gpus_per_node)
    adam = mine * ranks * frame.factor("cpu_adam_seconds_per_parameter")
    return np.maximum(copied + adam - update_seconds(frame, trained), 0.0)


def parameter_fetch_seconds(frame: Frame, count: Local) -> Any:
    """Copying this rank's shard of a layer's parameters to the device, before one gather. [s]

    Source: ZeRO-Infinity, arXiv:2104.07857 section 5.1 (each rank fetches its 1/N, then all gather).
    """
    mine = (count.dense / frame.replicas + count.experts / frame.expert_replicas) * gather_bytes(frame)
    return choose(frame.column("parameter_offload") > 0, mine / pcie_rate(frame), 0.0)


@once
def activation_copy_seconds(frame: Frame) -> Any:
    """Copying one layer's boundary activation to the host in the forward, or back in the backward. [s]

    Source: DeepSpeed `activation_checkpointing.cpu_checkpointing` (the checkpoints move, nothing else).
    """
    size = frame.tokens * frame.model.hidden_size * frame.width / frame.sp
    return choose(frame.column("activation_offload") > 0, size / pcie_rate(frame), 0.0)
