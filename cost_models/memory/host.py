"""Host memory of one rank: offloaded states in pinned buffers, copies while loading and saving, the process itself."""

from typing import Any

import numpy as np

from cost_models.arrays import Array, choose
from cost_models.calibration import Calibration
from cost_models.memory.setting import Setting
from cost_models.memory.states import States

FP32 = 4.0


def offloaded_layer_bytes(setting: Setting, states: States, calibration: Calibration) -> Any:
    r"""Host bytes of one layer whose optimizer runs on the CPU: pageable states, pinned master and gradient. [bytes]

    .. math:: (K - 4)\,\Psi + 2 \cdot 4\,f_{pin}\,\Psi

    Source: ZeRO-Offload, arXiv:2101.06840, section 4; deepspeed `runtime/zero/offload_config.py`, pin_memory.
    """
    if setting.job.training.offload_to == "nvme":
        return 0.0 * states.optimizer_total
    master = choose(setting.layout("master") > 0, 4.0, 0.0) * states.trained_shard
    pinned = calibration("host.pinned_factor") * 8.0 * states.trained_shard
    return states.optimizer_total - master + pinned


def offloaded_weight_bytes(setting: Setting, whole: Array, calibration: Calibration) -> Any:
    """Host bytes of the rank's shard of 16-bit weights under parameter offload. [bytes]

    An fp32 master that is the weight itself counts with its optimizer.
    """
    if setting.job.training.offload_to == "nvme":
        return 0.0 * whole
    separate = (setting.column("parameter_offload") > 0) & (setting.layout("master") > 0)
    on = choose(separate, 1.0, 0.0)
    return on * calibration("host.pinned_factor") * setting.compute * whole / setting.shards


def offloaded_activation_bytes(
    setting: Setting, boundary: Array, layers: Any, flight: Any, calibration: Calibration
) -> Any:
    """Host bytes of boundaries that activation offload moves: all layers of a stage, all micro-batches in flight.
    [bytes]
    """
    on = choose(setting.column("activation_offload") > 0, 1.0, 0.0)
    return on * calibration("host.pinned_factor") * boundary * layers * flight


def load_copy_bytes(setting: Setting, stored: Array, whole: Array) -> Any:
    """Host copy of one rank while weights are loaded, before any optimizer state exists. [bytes]

    `file`: one checkpoint file at a time; `model`: every rank reads all of it; `shard`: the rank's own tensors.
    `whole_on_host`: the model is built in fp32 before it is partitioned, as without DeepSpeed's zero.Init.
    """
    if setting.job.training.load == "whole_on_host":
        return FP32 * whole * np.ones_like(setting.tensor)
    size = setting.compute * whole
    load = choose(setting.says("load_copy", "shard"), stored, 0.0)
    load = choose(setting.says("load_copy", "file"), np.minimum(setting.fact("checkpoint_file_bytes"), size), load)
    return choose(setting.says("load_copy", "model"), size, load)


def save_copy_bytes(setting: Setting, stored: Array) -> Any:
    """Host copy of one rank while a checkpoint is saved, beside its offloaded states. [bytes]"""
    return choose(setting.says("save_copy", "shard"), stored, 0.0)


def nvme_buffer_bytes(setting: Setting, calibration: Calibration) -> Any:
    """Pinned buffers through which states and weights on NVMe pass. [bytes per rank]

    Source: arXiv:2104.07857, section 5.1.3; deepspeed `runtime/zero/offload_config.py`, buffer_count, buffer_size.
    """
    moves = (setting.column("optimizer_offload") > 0) | (setting.column("parameter_offload") > 0)
    size = calibration("host.pinned_factor") * calibration("host.nvme_buffer_bytes")
    asked = 1.0 if setting.job.training.offload_to == "nvme" else 0.0
    return asked * choose(moves, size, 0.0)


def gathered_save_bytes(setting: Setting, whole: Array) -> Any:
    """The full model that one rank of a node gathers to save it. [bytes per node]

    A run of adapters saves those alone, which are too small to count.
    Source: peft `utils/save_and_load.py`, get_peft_model_state_dict; arXiv:2106.09685 section 4.2.
    """
    if setting.adapters is not None:
        return 0.0
    return choose(setting.says("save_copy", "full"), setting.layout("weight") * whole, 0.0)
