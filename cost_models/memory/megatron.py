"""Saved tensors of Megatron-Core layers with Transformer Engine. [bytes per token and rank]

Source: arXiv:2205.05198, section 4 (dense layers), with fused attention, SwiGLU and grouped experts as
Megatron-LM `core/transformer` and Transformer Engine keep them. `b` is the compute dtype's size.
"""

from typing import Any

import numpy as np

from cost_models.arrays import choose
from cost_models.memory.activations import UNLESS_SELECTIVE, Moment, Saved
from cost_models.memory.moe import megatron_experts
from cost_models.memory.setting import Setting, once
from cost_models.specs.model import LayerKind


def _norms(setting: Setting) -> list[Saved]:
    """Input and output of each norm; a dropout mask per residual branch where dropout is on."""
    model, b, s = setting.model, setting.compute, setting.sequence_shards
    h = model.hidden_size
    masks = setting.fact("dropout") * 2.0 * h / s
    each = 2 * b * h / s
    parts = [Saved(operator=f"norm_{i}", part="norm", bytes_per_token=each) for i in range(model.norms_per_layer)]
    return [*parts, Saved(operator="dropout_masks", part="norm", bytes_per_token=masks)]


@once
def scores(setting: Setting) -> Any:
    """Unfused attention: softmax, and mask and dropped copy under dropout: 5 n s of arXiv:2205.05198, equation 2."""
    b = setting.compute
    kept = b + setting.fact("dropout") * (1.0 + b)
    return kept * setting.model.num_attention_heads * setting.job.training.sequence_length / setting.tensor


def _attention(setting: Setting) -> list[Saved]:
    model, b, t = setting.model, setting.compute, setting.tensor
    n = model.num_attention_heads
    kernel = choose(setting.materialised, scores(setting), 4.0 * n / t)
    if model.mla is not None:
        projections = _latent(setting)
        output = b * n * model.mla.v_head_dim / t
        width = n * model.mla.v_head_dim
    else:
        kv_shards = np.minimum(t, model.num_key_value_heads)
        query, key_value = b * model.query_width / t, 2 * b * model.key_value_width / kv_shards
        projections = [
            Saved(operator="query", part="attention", bytes_per_token=query),
            Saved(operator="key_value", part="attention", bytes_per_token=key_value),
        ]
        if model.qk_norm != "none":
            # Norms of queries and keys keep their inputs beside their outputs.
            inputs = query + b * model.key_value_width / kv_shards
            projections.append(Saved(operator="qk_norm", part="attention", bytes_per_token=inputs))
        width = model.query_width
        output = b * width / t
    # Ring attention keeps its own copy of the output beside the one the projection saves.
    ring = choose(setting.column("context_parallel") > 1, b * width / t, 0.0)
    return [
        *projections,
        Saved(operator="attention_output", part="attention", bytes_per_token=output),
        Saved(operator="context_parallel_output", part="attention", bytes_per_token=ring),
        Saved(operator="attention_kernel", part="attention", bytes_per_token=kernel, modes=UNLESS_SELECTIVE),
    ]


def _latent(setting: Setting) -> list[Saved]:
    """Latents before and after their norms, and expanded queries, keys and values.

    Source: arXiv:2405.04434, equations 9-19.
    """
    model, b, t, s = setting.model, setting.compute, setting.tensor, setting.sequence_shards
    mla, n = model.mla, model.num_attention_heads
    assert mla is not None
    qk, expanded = mla.qk_nope_head_dim + mla.qk_rope_head_dim, mla.qk_nope_head_dim + mla.v_head_dim
    latent = 2 * b * ((mla.q_lora_rank or 0) + mla.kv_lora_rank) / s
    return [
        Saved(operator="latent", part="attention", bytes_per_token=latent),
        Saved(operator="query_key", part="attention", bytes_per_token=2 * b * n * qk / t),
        Saved(operator="expanded_key_value", part="attention", bytes_per_token=b * n * expanded / t),
    ]


def _mlp(setting: Setting, width: int, *, gated: bool) -> list[Saved]:
    """GELU keeps its input and output, SwiGLU both halves and the product. Source: arXiv:2205.05198, section 4.1."""
    copies = 3.0 if gated else 2.0
    return [Saved(operator="activation", part="mlp", bytes_per_token=setting.compute * copies * width / setting.tensor)]


@once
def layer(setting: Setting, kind: LayerKind) -> tuple[Saved, ...]:
    """Every saved tensor of one layer."""
    model = setting.model
    parts = [*_norms(setting), *_attention(setting)]
    if kind.mlp == "dense":
        parts += _mlp(setting, model.intermediate_size, gated=model.gated_mlp)
    else:
        assert model.moe is not None
        parts += megatron_experts(setting)
        if model.moe.shared_expert_intermediate_size:
            parts += _mlp(setting, model.moe.shared_expert_intermediate_size, gated=model.moe.gated_experts)
    return tuple(parts)


@once
def backward_moments(setting: Setting, kind: LayerKind) -> tuple[Moment, ...]:
    r"""What a layer's backward adds: the gathered input of a product and both halves of the MLP. [bytes per token]

    .. math:: c\,h + 2 b f / t

    with the framework's c (`backward_hidden_bytes`), width f and b bytes an element.
    Source: Megatron-LM `core/tensor_parallel/layers.py`, LinearWithGradAccumulationAndAsyncCommunication.
    """
    model, t = setting.model, setting.tensor
    width: Any = model.intermediate_size / t
    if kind.mlp == "moe" and model.moe is not None:
        routed = model.moe.num_experts_per_tok * model.moe.moe_intermediate_size / setting.sequence_shards
        width = routed + model.moe.shared_expert_intermediate_size / t
    added = setting.fact("backward_hidden_bytes") * model.hidden_size + 2 * setting.compute * width
    return (Moment(name="product", added=added),)
