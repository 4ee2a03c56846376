"""What exists only while gradients are reduced over data-parallel ranks: flat copies, and what they are copied from."""

from typing import Any

import numpy as np

from cost_models.arrays import choose
from cost_models.memory.activations import FULL, boundary_bytes, saved_bytes
from cost_models.memory.overheads import gathering, keeps_buckets, kept_gathered
from cost_models.memory.pieces import WITH_EMBEDDING, WITH_HEAD, Pieces
from cost_models.memory.setting import Setting, Terms, once
from cost_models.memory.sharding import local
from cost_models.parameters import embedding_weights, head_weights

EAGER = 0


@once
def allreduced_bytes(pieces: Pieces) -> Any:
    """Flat copy of gradients that are all-reduced together after backward, where no state is sharded. [bytes]

    Source: deepspeed `runtime/engine.py`, allreduce_bucket, MEMORY_OPT_ALLREDUCE_SIZE.
    """
    setting = pieces.setting
    plain = choose(setting.column("zero_stage") == 0, setting.layout("gradient"), 0.0)
    return plain * np.minimum(setting.fact("allreduced_parameters"), pieces.trained)


def between_cpus(setting: Setting) -> bool:
    """Whether gloo reduces, not NCCL."""
    return setting.job.device.kind == "cpu"


def scattered_copies(setting: Setting) -> Any:
    """Copies of its input that a reduce-scatter makes: NCCL none, gloo one.

    Source: torch `csrc/distributed/c10d/ProcessGroupGloo.cpp`, reduce_scatter_tensor_coalesced.
    """
    return setting.fact("gloo_scatter_copies") if between_cpus(setting) else 0.0


@once
def bucket_copies(pieces: Pieces, *, ended: bool) -> Any:
    """Flat copies of a kept bucket while it is reduce-scattered: when it is full, and at the end of backward.

    Source: deepspeed `runtime/zero/stage3.py`, reduce_independent_p_g_buckets_and_remove_grads;
    `runtime/comm/coalesced_collectives.py`, reduce_scatter_coalesced.
    """
    setting = pieces.setting
    full = 1.0 if ended else choose(pieces.trained > setting.fact("bucket_parameters"), 1.0, 0.0)
    copies = setting.fact("scatter_copies") + choose(setting.fact("scatter_copies") > 0, scattered_copies(setting), 0.0)
    return full * keeps_buckets(setting) * copies


@once
def layer_reduction(pieces: Pieces, kind: int, mode: int, *, first: bool) -> Terms:
    """A layer's reduction after its backward under full sharding, the fuller moment where it is copied. [bytes]

    Its activations and gathered weights are gone; its gradients lie in the input of their reduce-scatter and, reduced,
    in their shards; the layer before it is prefetched.

    Source: torch `distributed/fsdp/_fully_shard/_fsdp_collectives.py`, foreach_reduce.
    """
    setting, held, states = pieces.setting, pieces.layers[kind], pieces.layer_states[kind]
    root, kept = scatters(setting), kept_gathered(setting)
    freed = boundary_bytes(setting) if mode == FULL else saved_bytes(pieces.saved[kind][EAGER], mode) * setting.tokens
    stream = choose(setting.autocast, 4.0, setting.activation)
    reduced = setting.accumulating if first else 1.0  # into a shard of its own, which is then added to the sum so far
    return {
        "recompute_boundary" if mode == FULL else "activations": -root * (0.0 if first else freed),
        "backward_working_set": root * stream * setting.model.hidden_size * setting.tokens / setting.sequence_shards,
        "live_parameters": root * (0.0 if first else 1.0 - 2.0 * kept) * pieces.gathered_layers[kind],
        "buckets": root * (1.0 + scattered_copies(setting)) * setting.layout("reduce") * (held.trained + held.expert),
        "gradients": root * reduced * states.gradients["gradients"],
    }


@once
def root_reduction(pieces: Pieces, stage_class: int) -> Any:
    """What the root group's gradients take beyond their shards when they are reduced, last of all. [bytes]

    First they are whole beside the input that they are copied into; then that is reduced into the shards, while the
    loop over them still holds the last of them. Source: the same.
    """
    setting = pieces.setting
    trained: Any = 0.0
    if stage_class in WITH_EMBEDDING:
        trained = trained + pieces.embedding.trained
    if stage_class in WITH_HEAD:
        trained = trained + pieces.head(stage_class).trained
    weights = (*embedding_weights(setting.model),) if stage_class in WITH_EMBEDDING else ()
    weights += head_weights(setting.model) if stage_class in WITH_HEAD else ()
    last = local(setting, weights[-1:]) if setting.adapters is None else 0.0
    reduce = setting.layout("reduce")
    shards = reduce * trained / setting.shards
    accumulating = setting.accumulating
    before = (setting.compute + reduce) * trained - (1.0 - accumulating) * shards
    after = (1.0 + scattered_copies(setting)) * reduce * trained + accumulating * shards + setting.compute * last
    return scatters(setting) * np.maximum(before, after)


@once
def scatters(setting: Setting) -> Any:
    """Whether each module's gradients are copied to be scattered: 1 or 0. Flat ones are what is scattered."""
    return choose(setting.flat, 0.0, gathering(setting, "root_group"))
