"""Saved tensors of Hugging Face modules in eager PyTorch. [bytes per token and rank]

Each entry follows from the operator's backward formula (`tools/autograd/derivatives.yaml` in PyTorch) and the
module's code in transformers; equal storages count once. `b` is the activations' size: 2 for bf16.
"""

from typing import Any

import numpy as np

from cost_models.memory.activations import NONE, ONLY_SELECTIVE, UNLESS_SELECTIVE, Moment, Saved, saved_bytes
from cost_models.memory.moe import eager_experts
from cost_models.memory.setting import Setting, once
from cost_models.memory.sharding import is_target
from cost_models.parameters import Split, layer_weights
from cost_models.specs.model import LayerKind

_WRITTEN_OUT = frozenset({"gelu_new", "gelu_fast"})
"""Activations that transformers spells out in elementary operators."""


def norm(setting: Setting, width: Any, *, rows: Any = 1.0) -> Any:
    """One norm: RMSNorm keeps its fp32 input, the 16-bit normalised input (its weight is trained) and 1/rms.

    LayerNorm is one kernel: input, mean and 1/std. Norms that run in fp32 end to end keep both in fp32; a LayerNorm
    spelled out in operators keeps three fp32 copies.
    """
    b, model = setting.activation, setting.model
    wide = setting.in_family("full_precision_norm_families") | setting.autocast
    trained = 0.0 if setting.adapters is not None else 1.0
    if model.normalization == "layernorm":
        kernel = np.where(setting.autocast, 4.0, b) * width + 8.0 * rows
        return np.where(setting.in_family("written_out_norm_families"), 12.0 * width + 4.0 * rows, kernel)
    normalised = trained * np.where(wide, 4.0, b)
    upcast = np.where(wide | (b < 4), 4.0, b)
    return (upcast + normalised) * width + 4.0 * rows


def _inputs(setting: Setting, width: Any, linears: Any) -> Any:
    """The input that linears keep for their weights' gradients: once, or a cast copy each under autocast."""
    if setting.adapters is not None:
        return 0.0
    copies = np.where(setting.autocast, linears, 1.0)
    return setting.activation * width * copies


def _norms(setting: Setting) -> list[Saved]:
    model, s = setting.model, setting.sequence_shards
    each = norm(setting, model.hidden_size) / s
    if model.parallel_residual and model.normalization == "layernorm" and model.norms_per_layer > 1:
        # Parallel branches norm one and the same input, which is saved once.
        shared = (
            np.where(setting.in_family("written_out_norm_families"), 0.0, setting.activation) * model.hidden_size / s
        )
        each = each - shared * (model.norms_per_layer - 1) / model.norms_per_layer
    return [
        Saved(operator=f"norm_{i}", part="norm", bytes_per_token=each, modes=UNLESS_SELECTIVE)
        for i in range(model.norms_per_layer)
    ]


def _low_precision_softmax(setting: Setting) -> Any:
    """Whether eager attention keeps the softmax in the activations' dtype."""
    return setting.in_family("low_precision_softmax_families") | (setting.activation == 4.0)


def _score_map(setting: Setting) -> Any:
    """Elements of one head's attention scores, over all heads of a rank. [per token]"""
    return setting.model.num_attention_heads * setting.job.training.sequence_length / setting.tensor


@once
def scores(setting: Setting) -> Any:
    """Materialised attention: fp32 softmax, its 16-bit copy, and the tanh of a soft cap. [bytes per token]

    Source: transformers `eager_attention_forward` (softmax in fp32, then a cast).
    """
    b = setting.activation
    wide = np.where(_low_precision_softmax(setting), 0.0, 4.0)
    cap = b if setting.model.attention_softcap else 0.0
    return (b + wide + cap) * _score_map(setting)


@once
def score_gradients(setting: Setting) -> Any:
    """What the softmax's backward adds to the saved scores: gradients of its output and input. [bytes per token]

    A 16-bit copy of an fp32 softmax is gone by then. CUDA multiplies output and gradient into a temporary of its own
    and writes a 16-bit gradient directly.
    Source: torch `aten/src/ATen/native/cuda/SoftMax.cu`, softmax_backward_cuda_out.
    """
    b, low = setting.activation, _low_precision_softmax(setting)
    gpu = setting.job.device.kind == "gpu"
    inner = np.where(low, b, 4.0)
    result = inner + np.where(gpu, b + inner, inner) - np.where(low, 0.0, b)
    return result * _score_map(setting)


def _attention(setting: Setting) -> list[Saved]:
    model, b, t = setting.model, setting.activation, setting.tensor
    if model.mla is not None:
        return _latent_attention(setting)
    q, kv = model.query_width, model.key_value_width
    kv_shards = np.minimum(t, model.num_key_value_heads)
    eager, n = setting.materialised, model.num_attention_heads
    kv_bytes = np.where(eager, 2 * b * q / t, 2 * b * kv / kv_shards)
    kernel = np.where(eager, scores(setting), 4.0 * n / t)
    parts = [
        Saved(operator="query", part="attention", bytes_per_token=b * q / t),
        Saved(operator="key_value", part="attention", bytes_per_token=kv_bytes),
        Saved(operator="attention_output", part="attention", bytes_per_token=b * q / t),
        Saved(operator="attention_kernel", part="attention", bytes_per_token=kernel),
    ]
    viewed = np.where(eager, 0.0, setting.in_family("projection_view_families") * b * (q + kv) / t)
    copied = np.where(eager, 0.0, setting.in_family("concatenated_rotary_families") * b * q / t)
    parts.append(Saved(operator="projection_view", part="attention", bytes_per_token=viewed))
    parts.append(Saved(operator="output_copy", part="attention", bytes_per_token=copied))
    if model.qk_norm != "none":
        head = model.qk_norm == "head"
        rows = (n + model.num_key_value_heads) if head else 2
        parts.append(
            Saved(
                operator="qk_norm", part="attention", bytes_per_token=norm(setting, q / t + kv / kv_shards, rows=rows)
            )
        )
    return [*parts, *_mask(setting)]


def _mask(setting: Setting) -> list[Saved]:
    """A padding mask is expanded to one s x s map per sample, kept by every sdpa layer.

    Source: transformers `masking_utils`, sdpa_mask.
    """
    if not setting.job.training.padded:
        return []
    length = setting.job.training.sequence_length
    kept = np.where(setting.materialised, 0.0, setting.activation * length)
    return [Saved(operator="attention_mask", part="attention", bytes_per_token=kept)]


@once
def shared_mask(setting: Setting) -> Any:
    """The s x s map per sample that recomputed layers keep as their argument, once for all of them. [bytes per token]

    Source: transformers `masking_utils`, eager_mask; torch `utils/checkpoint.py`.
    """
    needed = setting.materialised | setting.job.training.padded
    return np.where(needed, setting.activation * setting.job.training.sequence_length, 0.0)


def _latent_attention(setting: Setting) -> list[Saved]:
    """Multi-head latent attention, expanded to full heads. Source: arXiv:2405.04434, equations 9-19."""
    model, b, t = setting.model, setting.activation, setting.tensor
    mla, n = model.mla, model.num_attention_heads
    assert mla is not None
    qk, v = mla.qk_nope_head_dim + mla.qk_rope_head_dim, mla.v_head_dim
    latent = norm(setting, mla.kv_lora_rank) + b * mla.kv_lora_rank
    if mla.q_lora_rank is not None:
        latent = latent + norm(setting, mla.q_lora_rank) + b * mla.q_lora_rank
    kernel = np.where(setting.materialised, scores(setting), 4.0 * n / t)
    return [
        Saved(operator="latent", part="attention", bytes_per_token=latent),
        Saved(operator="query", part="attention", bytes_per_token=b * n * qk / t),
        Saved(operator="key_value", part="attention", bytes_per_token=b * n * (qk + v) / t),
        Saved(operator="attention_output", part="attention", bytes_per_token=b * n * v / t),
        Saved(operator="attention_kernel", part="attention", bytes_per_token=kernel),
        *_mask(setting),
    ]


def activation_copies(setting: Setting, *, gated: bool) -> float:
    """Tensors of the MLP's width that its activation keeps, the down projection's input included. [copies]"""
    model = setting.model
    name = model.activation
    if name in _WRITTEN_OUT:
        copies = 5.0
    elif name in {"relu", "relu2"}:
        copies = 1.0 if name == "relu" else 2.0
    elif name == "quick_gelu":
        copies = 3.0
    else:
        copies = 2.0
    return copies + 2.0 if gated else copies


def _mlp(setting: Setting, width: int, *, part: str, gated: bool) -> list[Saved]:
    b, t = setting.activation, setting.tensor
    copies = activation_copies(setting, gated=gated) - (0.0 if setting.adapters is None else 1.0)
    return [Saved(operator="activation", part=part, bytes_per_token=b * copies * width / t, modes=UNLESS_SELECTIVE)]


def _adapters(setting: Setting, kind: LayerKind) -> list[Saved]:
    """Each adapter keeps its input in its own dtype and its rank-r product. Source: peft `tuners/lora/layer.py`."""
    lora = setting.adapters
    if lora is None:
        return []
    size = np.where(lora.adapter_dtype == "fp32", 4.0, setting.activation)
    cast = np.where(size == setting.activation, 0.0, 1.0)
    kept: Any = 0.0
    inputs: set[tuple[int, bool]] = set()
    for w in layer_weights(setting.model, kind):
        if not is_target(w, lora):
            continue
        width = w.in_features / (setting.tensor if w.split is Split.ROW else 1.0)
        # Without a cast the adapters of one input share it.
        again = (w.in_features, w.split is Split.ROW) in inputs
        inputs.add((w.in_features, w.split is Split.ROW))
        kept = kept + size * (width * (cast if again else 1.0) + lora.rank)
    return [Saved(operator="lora", part="adapter", bytes_per_token=kept, modes=UNLESS_SELECTIVE)]


def _operators_kept(setting: Setting, kind: LayerKind) -> list[Saved]:
    """Per-operator selective recompute keeps every second matrix product and the attention kernel.

    Source: torchtitan `distributed/activation_checkpoint.py` (selective, "op"): 2h + 2q + 2kv + 2f + 2h beside the
    kernel's.
    """
    model, b, t, s = setting.model, setting.activation, setting.tensor, setting.sequence_shards
    width = model.intermediate_size
    if kind.mlp == "moe" and model.moe is not None:
        width = model.moe.num_experts_per_tok * model.moe.moe_intermediate_size
    kept = {"input": 2 * b * model.hidden_size / s, "up": b * width / t}
    return [
        Saved(operator=name, part="mlp", bytes_per_token=value, modes=ONLY_SELECTIVE) for name, value in kept.items()
    ]


@once
def layer(setting: Setting, kind: LayerKind) -> tuple[Saved, ...]:
    """Every saved tensor of one layer."""
    model, s = setting.model, setting.sequence_shards
    h = model.hidden_size
    parts = _norms(setting)
    linears = 2 if model.parallel_residual and model.norms_per_layer == 1 else 1
    projections = np.where(setting.in_family("fused_projection_families"), 1.0, 3.0)
    attention_input = _inputs(setting, h, projections) / s
    parts.append(
        Saved(operator="attention_input", part="norm", bytes_per_token=attention_input, modes=UNLESS_SELECTIVE)
    )
    parts += _attention(setting)
    if linears == 1 or kind.mlp == "moe":
        mlp_input = _inputs(setting, h, 2 if model.gated_mlp else 1) / s
        parts.append(Saved(operator="mlp_input", part="norm", bytes_per_token=mlp_input, modes=UNLESS_SELECTIVE))
    if kind.mlp == "dense":
        parts += _mlp(setting, model.intermediate_size, part="mlp", gated=model.gated_mlp)
    else:
        assert model.moe is not None
        parts += eager_experts(setting)
        if model.moe.shared_expert_intermediate_size:
            parts += _mlp(setting, model.moe.shared_expert_intermediate_size, part="mlp", gated=model.moe.gated_experts)
    return (*parts, *_adapters(setting, kind), *_operators_kept(setting, kind))


@once
def backward_moments(setting: Setting, kind: LayerKind) -> tuple[Moment, ...]:
    """The moments of a layer's backward at which memory may peak.

    At the gated product's backward the gradients of the stream and of both factors are alive; at the second norm's
    backward the MLP's tensors are gone but fp32 copies of the norm are there; with materialised attention the
    softmax's backward holds the gradients of the scores.
    """
    model, b, t, s = setting.model, setting.activation, setting.tensor, setting.sequence_shards
    h = model.hidden_size
    stream = np.where(setting.autocast, 4.0, b)
    width: Any = model.intermediate_size / t
    if kind.mlp == "moe" and model.moe is not None:
        routed = model.moe.num_experts_per_tok * model.moe.moe_intermediate_size
        width = routed + model.moe.shared_expert_intermediate_size / t
    entries = layer(setting, kind)
    mlp = saved_bytes(entries, NONE, "mlp", "experts", "router")
    product = Moment(name="product", added=stream * h / s + 2 * b * width, weights=("down_proj",))
    upcast = Moment(name="norm", added=18.0 * h / s - mlp, weights=("down_proj", "up_proj", "gate_proj"))
    freed = mlp + norm(setting, h) / s + _inputs(setting, h, 1) / s + b * model.query_width / t
    stream_copies = np.where(setting.materialised, 2 * stream * h / s, 0.0)
    softmax = Moment(
        name="softmax",
        added=stream_copies - freed,
        scores=np.where(setting.materialised, score_gradients(setting), 0.0),
        weights=("down_proj", "up_proj", "gate_proj", "o_proj"),
    )
    return product, upcast, softmax
