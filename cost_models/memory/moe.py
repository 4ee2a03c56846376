"""Mixture of experts: routed tokens, their copies and the router's tensors. [bytes per token and rank]"""

from typing import Any

from cost_models.memory.activations import ALWAYS, UNLESS_SELECTIVE, Saved
from cost_models.memory.setting import Setting


def imbalance(setting: Setting) -> float:
    """Load of the fullest expert's rank over the mean: what the job states."""
    return setting.job.training.expert_imbalance


def eager_experts(setting: Setting) -> list[Saved]:
    """Grouped expert products of transformers: per routed copy its input and output, and the MLP's tensors.

    Source: transformers `integrations/moe.py` (grouped_mm): topk (4h + 8f) + 2h and the fp32 router probabilities.
    """
    model, b = setting.model, setting.activation
    moe = model.moe
    assert moe is not None
    s = setting.strategy
    routed = moe.num_experts_per_tok * imbalance(setting)
    copies = 4.0 if moe.gated_experts else 2.0
    trained = setting.adapters is None
    inputs = 2 * b * model.hidden_size if trained else b * model.hidden_size
    inner = b * copies * moe.moe_intermediate_size / s.expert_tensor_parallel
    router: Any = (4.0 + b) * moe.num_experts + 16.0 * moe.num_experts_per_tok
    return [
        Saved(operator="experts", part="experts", bytes_per_token=routed * (inputs + inner), modes=UNLESS_SELECTIVE),
        Saved(operator="router", part="router", bytes_per_token=router, modes=ALWAYS),
    ]


def megatron_experts(setting: Setting) -> list[Saved]:
    """Dispatched tokens of Megatron's grouped experts: topk (4h + 6 f_m / etp), router 8E.

    A rank of an expert-tensor-parallel group works on the tokens of the whole group.
    Source: Megatron-LM `core/transformer/moe/{experts,router,token_dispatcher}.py`.
    """
    model, b = setting.model, setting.compute
    moe = model.moe
    assert moe is not None
    etp = setting.strategy.expert_tensor_parallel
    routed = moe.num_experts_per_tok * imbalance(setting) * etp / setting.sequence_shards
    copies = 3.0 if moe.gated_experts else 2.0
    inner = b * copies * moe.moe_intermediate_size / etp
    router = 8.0 * moe.num_experts / setting.sequence_shards
    return [
        Saved(operator="experts", part="experts", bytes_per_token=routed * (2 * b * model.hidden_size + inner)),
        Saved(operator="router", part="router", bytes_per_token=router),
    ]
