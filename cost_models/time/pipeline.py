"""Between pipeline stages: boundary transfers and the tied embedding. The bubble itself is `schedule.step_seconds`."""

from collections import Counter
from typing import Any

import numpy as np

from cost_models.arrays import choose
from cost_models.parameters import padded_vocabulary
from cost_models.specs.cluster import LinkSpec
from cost_models.time.collectives import Group, between_pools, group, neighbour_seconds
from cost_models.time.data_parallel import reduce_bytes
from cost_models.time.frame import Frame, once
from cost_models.time.layer import layer_cover


@once
def boundary_seconds(frame: Frame) -> tuple[Any, Any]:
    r"""Exposed and hidden point-to-point transfers of one micro-batch at one stage, forward and backward. [s]

    .. math:: \max(2 v \varphi\,(T h \beta / \text{rate} + \alpha),\; v\,(B / \text{rate} + \alpha) - f)

    An interleaved schedule passes v boundaries a direction. phi is what is left of a transfer after the overlap with
    compute (in Megatron-DeepSpeed also after the scatter over tensor-parallel ranks), fitted per network. Whatever it
    is, B bytes cross each boundary and direction (links are full duplex), and a stage of mean length has its compute
    f to cover them, no more.
    Source: arXiv:2104.04473 sections 2.2 and 4.1; Megatron-LM `overlap_p2p_comm`.
    """
    network = frame.job.boundary or frame.job.pool.inter_node_link
    share = frame.factor("point_to_point_share", network.name, "default")
    virtual = frame.column("virtual_pipeline_stages")
    parts = choose(frame.backend_is("megatron-deepspeed"), 1.0, frame.sp)
    both_ways = 2 * virtual * _transfer_seconds(frame, parts)
    unavoidable = np.maximum(wire_seconds(frame) - _stage_cover(frame), 0.0)
    exposed = np.maximum(both_ways * share, unavoidable)
    return exposed, np.maximum(wire_seconds(frame) - exposed, 0.0)


@once
def wire_seconds(frame: Frame) -> Any:
    """Transfers of one micro-batch over a stage's boundaries in one direction, at the least. [s]

    Ranks of a tensor-parallel group hold equal hidden states, or a part of the sequence each. They send a part each
    with sequence parallelism, and always by Megatron's scatter and gather.
    Source: arXiv:2104.04473 section 4.1.
    """
    parts = choose(frame.backend_is("megatron-deepspeed"), frame.tp, frame.sp)
    return frame.column("virtual_pipeline_stages") * _transfer_seconds(frame, parts)


def _transfer_seconds(frame: Frame, parts: Any) -> Any:
    size = frame.tokens * frame.model.hidden_size * frame.width / parts
    return neighbour_seconds(_joined(frame, frame.job.boundary, frame.pp, frame.tp * frame.cp * frame.dp), size)


def _joined(frame: Frame, other: LinkSpec | None, size: Any, stride: Any) -> Group:
    """Ranks of different stages, in one pool or beside another one."""
    return group(frame, size, stride) if other is None else between_pools(frame, other, size, stride)


@once
def _stage_cover(frame: Frame) -> Any:
    """Compute of a mean stage's layers for one micro-batch that covers no communication yet. [s]"""
    cover: Any = 0.0
    for kind, count in Counter(frame.model.layer_sequence).items():
        one = layer_cover(frame, kind)
        cover = cover + count * (one.forward + one.backward)
    return cover / frame.pp


@once
def boundary_share(frame: Frame) -> Any:
    """Share of a stage's compute beside which boundary transfers run: no other communication can."""
    cover = _stage_cover(frame)
    return choose(cover > 0, np.minimum(boundary_seconds(frame)[1] / np.maximum(cover, 1e-30), 1.0), 0.0)


@once
def tied_embedding_seconds(frame: Frame) -> Any:
    """Summing the gradients of a tied embedding held by the first and the last stage, once a step. [s]

    Source: arXiv:2104.04473 section 3.3 (all-reduce between the two embedding copies); Megatron-LM
    `distributed/finalize_model_grads.py`.
    """
    if not frame.model.tie_word_embeddings or frame.adapters:
        return 0.0
    rows = padded_vocabulary(frame.model, frame.tp) / frame.tp
    size = rows * frame.model.hidden_size * reduce_bytes(frame)
    stride = frame.tp * frame.cp * frame.dp * np.maximum(frame.pp - 1, 1.0)
    ends = _joined(frame, frame.job.ends, np.minimum(frame.pp, 2.0), stride)
    return choose(frame.pp > 1, 2 * neighbour_seconds(ends, size), 0.0)
