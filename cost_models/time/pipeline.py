"""Between pipeline stages: boundary transfers and the tied embedding. The bubble itself is `schedule.step_seconds`."""

from typing import Any

import numpy as np

from cost_models.parameters import padded_vocabulary
from cost_models.time.collectives import group, neighbour_seconds
from cost_models.time.data_parallel import reduce_bytes
from cost_models.time.frame import Frame, once


@once
def boundary_seconds(frame: Frame) -> Any:
    r"""Point-to-point transfers of one micro-batch at one stage, forward and backward. [s]

    .. math:: 2\,[\phi\,T h \beta / \text{rate} + \alpha]

    phi is what is left of the transfer after the scatter over tensor-parallel ranks and the overlap with compute;
    fitted per network. An interleaved schedule passes v times over every boundary, but is the one that Megatron
    overlaps with compute, so that published runs show no growth with v.
    Source: arXiv:2104.04473 sections 2.2 and 4.1; Megatron-LM `overlap_p2p_comm`.
    """
    stride = frame.tp * frame.cp * frame.dp
    share = frame.factor("point_to_point_share", frame.job.pool.inter_node_link.name, "default")
    size = frame.tokens * frame.model.hidden_size * frame.width * share
    return 2 * neighbour_seconds(group(frame, frame.pp, stride), size)


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
    ends = group(frame, np.minimum(frame.pp, 2.0), frame.tp * frame.cp * frame.dp * np.maximum(frame.pp - 1, 1.0))
    return np.where(frame.pp > 1, 2 * neighbour_seconds(ends, size), 0.0)
