"""Mixture of experts: routed tokens, their copies and the router's tensors. [bytes per token and rank]"""

from cost_models.memory.activations import Saved
from cost_models.memory.setting import Setting


def imbalance(setting: Setting) -> float:
    """Load of the fullest expert's rank over the mean: what the job states."""
    return setting.job.training.expert_imbalance


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
