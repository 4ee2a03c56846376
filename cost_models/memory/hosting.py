"""Host memory of a rank and of a node, put together from `host`."""

from typing import Any

import numpy as np

from cost_models.arrays import FloatArray, by_candidate, ceil_div, choose
from cost_models.calibration import Calibration
from cost_models.memory.activations import boundary_bytes
from cost_models.memory.host import (
    gathered_save_bytes,
    load_copy_bytes,
    nvme_buffer_bytes,
    offloaded_activation_bytes,
    offloaded_layer_bytes,
    offloaded_weight_bytes,
    save_copy_bytes,
)
from cost_models.memory.pieces import Pieces
from cost_models.memory.setting import Setting, total
from cost_models.memory.states import weight_bytes
from cost_models.schedule import BOTH, STAGE_CLASSES, in_flight


def host_layer_bytes(pieces: Pieces, kind: int, calibration: Calibration) -> Any:
    """Host bytes of one rank for each layer whose optimizer states are offloaded."""
    return offloaded_layer_bytes(pieces.setting, pieces.layer_states[kind], calibration)


def host_rank_bytes(pieces: Pieces, calibration: Calibration) -> Any:
    r"""Host bytes of one rank whatever its layers: process, copies, offloaded weights and activations of an average
    stage.

    Loading comes before there are states to offload, so a rank needs max(load, save + offloaded): not linear in the
    offloaded layers. But the larger of two fits where both fit, so a load that fits leaves its place to the save, and
    one that does not is itself the constant, which no layout then satisfies.
    """
    setting = pieces.setting
    if setting.job.device.kind == "cpu":
        return np.zeros_like(setting.tensor)  # its memory is the device's own
    loading, after = _loading_and_after(pieces, calibration)
    fits = np.asarray(_node_ranks(setting) * loading <= host_usable_bytes(pieces, calibration))
    return choose(fits, after, np.maximum(loading, after))


def load_node_bytes(pieces: Pieces, calibration: Calibration) -> Any:
    """Host bytes of the fullest node while weights are loaded."""
    if pieces.setting.job.device.kind == "cpu":
        return np.zeros_like(pieces.setting.tensor)
    return _node_ranks(pieces.setting) * _loading_and_after(pieces, calibration)[0]


def _node_ranks(setting: Setting) -> Any:
    """Ranks of the job on its fullest node: all of them where they fill none."""
    return np.minimum(setting.strategy.world_size, setting.job.pool.gpus_per_node)


def _loading_and_after(pieces: Pieces, calibration: Calibration) -> tuple[Any, Any]:
    """Host bytes of one rank while it loads, and later without its offloaded layers."""
    setting, s = pieces.setting, pieces.setting.strategy
    counts = setting.layer_counts
    weights: Any = 0.0
    for count, held in zip(counts, pieces.layers, strict=True):
        weights = weights + count * total(weight_bytes(setting, held))
    stored = weights / s.pipeline_parallel
    layers = ceil_div(setting.model.num_hidden_layers, setting.column("pipeline_parallel"))
    micro_batches = s.gradient_accumulation_steps
    flight = in_flight(
        0, s.pipeline_parallel, s.virtual_pipeline_stages, micro_batches, setting.model.num_hidden_layers
    )
    ends = [s for s in pieces.ends(BOTH) if s is not None]
    moved = sum((offloaded_layer_bytes(setting, end, calibration) for end in ends), np.zeros_like(setting.tensor))
    always = calibration("host.process_bytes") + offloaded_weight_bytes(setting, pieces.whole, calibration)
    after = (
        always
        + choose(setting.offloads_ends, moved, 0.0)
        + nvme_buffer_bytes(setting, calibration)
        + _paged(pieces)
        + save_copy_bytes(setting, stored)
        + offloaded_activation_bytes(setting, boundary_bytes(setting), layers, flight, calibration)
    )
    return always + load_copy_bytes(setting, stored, pieces.whole), after


def _paged(pieces: Pieces) -> Any:
    """Optimizer states that are paged to the host, in pageable memory, of an average stage. [bytes]

    Source: arXiv:2305.14314, section 3, paged optimizers.
    """
    setting = pieces.setting
    if not setting.job.training.optimizer_paged:
        return 0.0
    counts = setting.layer_counts
    layers: Any = 0.0
    for count, held in zip(counts, pieces.layer_states, strict=True):
        layers = layers + count * held.optimizer_total
    ends = [end.optimizer_total for end in pieces.ends(BOTH) if end is not None]
    here = choose(setting.column("optimizer_offload") > 0, 0.0, 1.0)
    return here * sum(ends, layers) / setting.strategy.pipeline_parallel


def host_usable_bytes(pieces: Pieces, calibration: Calibration) -> Any:
    """Host bytes of one node that ranks may use: what is left beside the system and a gathered save."""
    setting = pieces.setting
    share = calibration("host.usable_fraction") * setting.job.pool.host_memory_bytes
    return np.maximum(share - gathered_save_bytes(setting, pieces.whole), 0.0)


def host_columns(pieces: Pieces, calibration: Calibration) -> dict[str, FloatArray]:
    """The table's host columns."""
    n = len(pieces.setting.strategy)
    layer = by_candidate(n, len(pieces.setting.kinds))
    for j in range(len(pieces.setting.kinds)):
        layer[:, j] = host_layer_bytes(pieces, j, calibration)
    constant = by_candidate(n, len(STAGE_CLASSES))
    constant[:] = np.reshape(np.broadcast_to(host_rank_bytes(pieces, calibration), (n,)), (n, 1))
    capacity = np.broadcast_to(host_usable_bytes(pieces, calibration), (n,))
    loading = np.broadcast_to(load_node_bytes(pieces, calibration), (n,))
    return {"host_layer": layer, "host_constant": constant, "host_capacity": capacity, "host_loading": loading}


def node_bytes(setting: Setting, per_stage: list[float]) -> float:
    """Most host bytes of any node. Ranks are ordered tensor, context, data, pipeline: a stage's are consecutive.
    [bytes]
    """
    s, node = setting.strategy, setting.job.pool.gpus_per_node
    ranks = int(s.tensor_parallel * s.context_parallel * s.data_parallel)
    if ranks % node == 0:
        return node * max(per_stage)
    most, total = 0.0, ranks * len(per_stage)
    for start in range(0, total, node):
        end, used = min(start + node, total), 0.0
        for stage in range(start // ranks, (end - 1) // ranks + 1):
            here = min(end, (stage + 1) * ranks) - max(start, stage * ranks)
            used += here * per_stage[stage]
        most = max(most, used)
    return most
