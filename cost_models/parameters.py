"""The inventory of trained tensors: one entry a weight, with its shape and how parallelism splits it.

Counts, shards, LoRA targets and 4-bit storage are all sums over this list, so none can disagree with another.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any

import numpy as np

from cost_models.arrays import Array, round_up
from cost_models.specs.model import LayerKind, ModelSpec


class Split(Enum):
    """How a tensor is divided over ranks."""

    COLUMN = "column"
    """Output features over tensor-parallel ranks."""
    ROW = "row"
    """Input features over tensor-parallel ranks."""
    KEY_VALUE = "key_value"
    """Like COLUMN, but never finer than one key-value head: replicated beyond that."""
    VOCABULARY = "vocabulary"
    """Rows of the padded vocabulary over tensor-parallel ranks."""
    EXPERT = "expert"
    """Experts over expert-parallel ranks, each expert's width over expert-tensor-parallel ranks."""
    REPLICATED = "replicated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """`copies` of one trained tensor of shape (out_features, in_features), or (out_features,) when in_features is 0."""

    name: str
    out_features: int
    in_features: int = 0
    bias: bool = False
    split: Split = Split.REPLICATED
    copies: int = 1
    """Equal tensors of this shape (experts)."""
    linear: bool = True
    """False for embeddings, norms and other tensors that no matrix product multiplies from the right."""

    @property
    def count(self) -> int:
        """Parameters over all ranks."""
        return self.copies * (self.out_features * max(self.in_features, 1) + (self.out_features if self.bias else 0))


def _norm(model: ModelSpec, name: str, width: int) -> list[Weight]:
    if not model.norm_affine:
        return []
    names = [name] + ([f"{name}_bias"] if model.norm_bias else [])
    return [Weight(name=n, out_features=width, linear=False) for n in names]


def attention_weights(model: ModelSpec) -> tuple[Weight, ...]:
    """Projections of one attention block, its qk-norms and sinks."""
    h, q, kv = model.hidden_size, model.query_width, model.key_value_width
    if model.mla is not None:
        return _mla_weights(model)
    weights = [
        Weight(name="q_proj", out_features=q, in_features=h, bias=model.qkv_bias, split=Split.COLUMN),
        Weight(name="k_proj", out_features=kv, in_features=h, bias=model.qkv_bias, split=Split.KEY_VALUE),
        Weight(name="v_proj", out_features=kv, in_features=h, bias=model.qkv_bias, split=Split.KEY_VALUE),
        Weight(name="o_proj", out_features=h, in_features=q, bias=model.attention_output_bias, split=Split.ROW),
    ]
    if model.qk_norm != "none":
        full = model.qk_norm == "full"
        weights += _norm(model, "q_norm", q if full else model.head_dim)
        weights += _norm(model, "k_norm", kv if full else model.head_dim)
    if model.attention_sinks:
        weights.append(Weight(name="sinks", out_features=model.num_attention_heads, split=Split.COLUMN, linear=False))
    return tuple(weights)


def _mla_weights(model: ModelSpec) -> tuple[Weight, ...]:
    mla = model.mla
    assert mla is not None
    h, heads = model.hidden_size, model.num_attention_heads
    weights: list[Weight] = []
    if mla.q_lora_rank is None:
        weights.append(Weight(name="q_proj", out_features=model.query_width, in_features=h, split=Split.COLUMN))
    else:
        weights += [
            Weight(name="q_a_proj", out_features=mla.q_lora_rank, in_features=h, bias=model.qkv_bias),
            *_norm(model, "q_a_layernorm", mla.q_lora_rank),
            Weight(name="q_b_proj", out_features=model.query_width, in_features=mla.q_lora_rank, split=Split.COLUMN),
        ]
    latent = mla.kv_lora_rank + mla.qk_rope_head_dim
    expanded = heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    weights += [
        Weight(name="kv_a_proj_with_mqa", out_features=latent, in_features=h, bias=model.qkv_bias),
        *_norm(model, "kv_a_layernorm", mla.kv_lora_rank),
        Weight(name="kv_b_proj", out_features=expanded, in_features=mla.kv_lora_rank, split=Split.COLUMN),
        Weight(
            name="o_proj", out_features=h, in_features=heads * mla.v_head_dim,
            bias=model.attention_output_bias, split=Split.ROW,
        ),
    ]  # fmt: skip
    return tuple(weights)


def _mlp(
    prefix: str, hidden: int, width: int, *, gated: bool, bias: bool, split: bool = True, **extra: Any
) -> list[Weight]:
    column, row = (Split.COLUMN, Split.ROW) if split else (Split.EXPERT, Split.EXPERT)
    up = {"out_features": width, "in_features": hidden, "bias": bias, "split": column, **extra}
    down = Weight(name=f"{prefix}down_proj", out_features=hidden, in_features=width, bias=bias, split=row, **extra)
    gate = [Weight(name=f"{prefix}gate_proj", **up)] if gated else []
    return [*gate, Weight(name=f"{prefix}up_proj", **up), down]


def mlp_weights(model: ModelSpec, kind: LayerKind) -> tuple[Weight, ...]:
    """Feed-forward weights of one layer: dense, or router, experts and shared experts."""
    h = model.hidden_size
    if kind.mlp == "dense":
        return tuple(_mlp("", h, model.intermediate_size, gated=model.gated_mlp, bias=model.mlp_bias))
    moe = model.moe
    assert moe is not None
    weights = [Weight(name="router", out_features=moe.num_experts, in_features=h, bias=moe.router_bias)]
    weights += _mlp(
        "experts.", h, moe.moe_intermediate_size,
        gated=moe.gated_experts, bias=moe.expert_bias, split=False, copies=moe.num_experts,
    )  # fmt: skip
    if moe.shared_expert_intermediate_size:
        weights += _mlp(
            "shared_expert.", h, moe.shared_expert_intermediate_size, gated=moe.gated_experts, bias=model.mlp_bias
        )
    if moe.shared_expert_gate:
        weights.append(Weight(name="shared_expert_gate", out_features=1, in_features=h))
    return tuple(weights)


def norm_weights(model: ModelSpec) -> tuple[Weight, ...]:
    """The hidden-size norms of one layer."""
    return tuple(w for i in range(model.norms_per_layer) for w in _norm(model, f"norm_{i}", model.hidden_size))


@lru_cache(maxsize=1024)
def layer_weights(model: ModelSpec, kind: LayerKind) -> tuple[Weight, ...]:
    """Every weight of one layer of a kind."""
    return attention_weights(model) + mlp_weights(model, kind) + norm_weights(model)


@lru_cache(maxsize=1024)
def embedding_weights(model: ModelSpec) -> tuple[Weight, ...]:
    """What the first stage holds beside its layers."""
    h = model.hidden_size
    width = model.embedding_projection or h
    weights = [
        Weight(
            name="embed_tokens", out_features=model.vocab_size, in_features=width, split=Split.VOCABULARY, linear=False
        )
    ]
    if model.position_embedding == "learned":
        weights.append(
            Weight(name="embed_positions", out_features=model.position_embedding_rows, in_features=h, linear=False)
        )
    if model.embedding_projection is not None:
        weights.append(Weight(name="project_in", out_features=h, in_features=width))
    if model.embedding_norm:
        weights += _norm(model, "embedding_norm", h)
    return tuple(weights)


@lru_cache(maxsize=1024)
def head_weights(model: ModelSpec) -> tuple[Weight, ...]:
    """What the last stage holds beside its layers; the output matrix of a tied model counts in the embedding."""
    h = model.hidden_size
    weights: list[Weight] = _norm(model, "final_norm", h) if model.final_norm else []
    if model.embedding_projection is not None:
        weights.append(Weight(name="project_out", out_features=model.embedding_projection, in_features=h))
    if not model.tie_word_embeddings:
        weights.append(
            Weight(
                name="lm_head", out_features=model.vocab_size, in_features=model.embedding_projection or h,
                bias=model.head_bias, split=Split.VOCABULARY,
            )
        )  # fmt: skip
    elif model.head_bias:
        weights.append(Weight(name="lm_head_bias", out_features=model.vocab_size, split=Split.VOCABULARY, linear=False))
    return tuple(weights)


def count(weights: Iterable[Weight]) -> int:
    """Parameters over all ranks."""
    return sum(weight.count for weight in weights)


def layer_parameters(model: ModelSpec) -> tuple[int, ...]:
    """Parameters of one layer, by kind in the order of `model.layer_kinds`."""
    return tuple(count(layer_weights(model, kind)) for kind in model.layer_kinds)


def total_parameters(model: ModelSpec) -> int:
    """Parameters of the whole model, tied weights once."""
    each = layer_parameters(model)
    counts = [model.layers.count(kind) for kind in model.layer_kinds] if model.layers else [model.num_hidden_layers]
    layers = sum(number * size for number, size in zip(counts, each, strict=True))
    return count(embedding_weights(model)) + layers + count(head_weights(model))


def active_parameters(model: ModelSpec) -> int:
    """Parameters that one token meets: all but the experts it is not routed to."""
    unused = 0
    if model.moe is not None:
        share = 1 - model.moe.num_experts_per_tok / model.moe.num_experts
        for kind in model.layer_sequence:
            if kind.mlp == "moe":
                unused += round(share * count(w for w in mlp_weights(model, kind) if w.split is Split.EXPERT))
    return total_parameters(model) - unused


def padded_vocabulary(model: ModelSpec, tensor_parallel: Any, multiple: int = 128) -> Any:
    """Vocabulary rows after padding to `multiple` times tensor_parallel; `multiple` 1 pads only to an even split.

    Source: Megatron-LM `--make-vocab-size-divisible-by` (128).
    """
    return round_up(model.vocab_size, multiple * np.asarray(tensor_parallel)[()])


def local_parameters(
    model: ModelSpec,
    weights: Iterable[Weight],
    *,
    tensor_parallel: Any,
    expert_parallel: Any = 1,
    expert_tensor_parallel: Any = 1,
    vocabulary_multiple: int = 1,
) -> Array:
    """Parameters that one rank holds before any ZeRO sharding. [parameters]

    Biases of ROW weights and REPLICATED weights are whole on every rank; key-value heads are replicated when there
    are fewer than tensor-parallel ranks. Source: Megatron-LM `tensor_parallel/layers.py`; GQA replication
    `attention.py` (num_query_groups_per_partition).
    """
    tp = np.asarray(tensor_parallel)[()]
    total: Array = np.zeros(np.broadcast(tp, np.asarray(expert_parallel)).shape)
    for w in weights:
        size, bias = w.out_features * max(w.in_features, 1), w.out_features if w.bias else 0
        if w.split is Split.COLUMN:
            total = total + (size + bias) / tp
        elif w.split is Split.KEY_VALUE:
            total = total + (size + bias) / np.minimum(tp, model.num_key_value_heads)
        elif w.split is Split.ROW:
            total = total + size / tp + bias
        elif w.split is Split.VOCABULARY:
            rows = padded_vocabulary(model, tp, vocabulary_multiple) / tp
            total = total + rows * (size / w.out_features + (1 if w.bias else 0))
        elif w.split is Split.EXPERT:
            total = total + w.copies * (size / expert_tensor_parallel + bias) / expert_parallel
        else:
            total = total + size + bias
    return total
