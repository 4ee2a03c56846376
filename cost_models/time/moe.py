"""Routed experts: grouped GEMMs, the all-to-all that feeds them, and permutation traffic."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from cost_models.arrays import choose
from cost_models.parameters import Split, mlp_weights
from cost_models.specs.model import LayerKind
from cost_models.time.collectives import all_to_all_seconds, expert_group
from cost_models.time.elementwise import streaming_seconds
from cost_models.time.frame import Frame
from cost_models.time.gemm import matmul_seconds, sustained_rate


@dataclass(frozen=True, slots=True)
class ExpertTime:
    """Seconds of one layer and micro-batch, forward."""

    gemm: Any = 0.0
    permute: Any = 0.0
    all_to_all: Any = 0.0


def expert_seconds(frame: Frame, kind: LayerKind) -> ExpertTime:
    """Everything that routing adds to one pass over a layer."""
    moe = frame.model.moe
    if kind.mlp != "moe" or moe is None:
        return ExpertTime()
    routed = frame.tokens * moe.num_experts_per_tok / frame.tp
    size = sum(w.out_features * w.in_features for w in mlp_weights(frame.model, kind) if w.split is Split.EXPERT)
    flops = 2 * routed * size * frame.job.training.expert_imbalance
    exchanged = routed * frame.model.hidden_size * frame.width
    group = expert_group(frame)
    distinct = np.where(frame.backend_is("megatron"), distinct_nodes(group.nodes, moe.num_experts_per_tok), 1.0)
    return ExpertTime(
        gemm=matmul_seconds(flops, sustained_rate(frame) * grouped_efficiency(frame, routed)),
        permute=streaming_seconds(frame.factor("permute_bytes") * routed * frame.model.hidden_size, frame.hbm),
        # Out to the experts and back.
        all_to_all=choose(frame.ep > 1, 2 * all_to_all_seconds(group, exchanged, distinct), 0.0),
    )


def distinct_nodes(nodes: Any, experts_per_token: int) -> Any:
    r"""Nodes that a token's k experts lie on, over k: one copy crosses to each and is handed on inside it.

    .. math:: K\,[1 - (1 - 1/K)^k] / k

    for experts drawn evenly over K nodes.
    Source: DeepEP and Megatron-LM `token_dispatcher.py` (flex dispatcher), which send a token once to a node;
    arXiv:2412.19437 section 3.2.2.
    """
    missed: Any = 1.0
    for _ in range(experts_per_token):
        missed = missed * (1 - 1 / nodes)
    return nodes * (1 - missed) / experts_per_token


def grouped_efficiency(frame: Frame, routed: Any) -> Any:
    r"""Rate of a grouped GEMM over that of a dense one.

    .. math:: \eta\, M / (M + M_{1/2}), \quad M = \text{routed tokens per local expert}

    Routed tokens of all expert-parallel ranks meet at E/ep local experts of a rank.
    Source: form of a half-performance length, Hockney; eta and M_half fitted.
    """
    moe = frame.model.moe
    assert moe is not None
    per_expert = routed * frame.etp * frame.ep / moe.num_experts
    return (
        frame.factor("grouped_gemm_efficiency") * per_expert / (per_expert + frame.factor("grouped_gemm_half_tokens"))
    )
