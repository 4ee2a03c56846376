"""Memory-bound operators: norms, residuals, activations, rotary embedding, casts, dequantisation."""

from typing import Any

import numpy as np

from cost_models.arrays import choose
from cost_models.parameters import Split, layer_weights
from cost_models.specs.choices import NARROW, PRECISIONS
from cost_models.specs.model import LayerKind
from cost_models.time.frame import Frame, device_keys, lookup


def streaming_seconds(size: Any, bandwidth: Any) -> Any:
    """Time to move `size` bytes through device memory. [s]"""
    return size / bandwidth


def upcast(frame: Frame) -> float:
    """Slow-down of element-wise operators where 4-bit training keeps norms, and with them the residual stream, in fp32.

    Source: peft `prepare_model_for_kbit_training` (casts what is not 4-bit to fp32).
    """
    if frame.job.training.method != "qlora":
        return 1.0
    return frame.factor("quantized_elementwise_slowdown", *device_keys(frame.device), "default")


def mlp_width(frame: Frame, kind: LayerKind) -> Any:
    """Elements per token between the two matrices of the feed-forward block on one rank, gate included. [elements]"""
    model = frame.model
    if kind.mlp == "dense" or model.moe is None:
        return model.intermediate_size * (2.0 if model.gated_mlp else 1.0) / frame.tp
    moe = model.moe
    routed = moe.num_experts_per_tok * moe.moe_intermediate_size
    gate = 2.0 if moe.gated_experts else 1.0
    return (routed + moe.shared_expert_intermediate_size) * gate / frame.tp


def projected_width(frame: Frame) -> Any:
    """Elements per token of queries, keys and values on one rank. [elements]"""
    model = frame.model
    if model.mla is not None:
        return (2.0 * model.query_width + model.num_attention_heads * model.mla.v_head_dim) / frame.tp
    return model.query_width / frame.tp + 2.0 * model.key_value_width / np.minimum(frame.tp, model.num_key_value_heads)


def forward_seconds(frame: Frame, kind: LayerKind) -> Any:
    r"""Element-wise traffic of one layer's forward. [s]

    .. math:: c\,T\,[h/\text{sp} + w\,(f g + q + k + v)/t]\,\beta / \text{HBM}

    c counts reads and writes of the hidden state and is fitted per back end (fused kernels need fewer); norms and
    residuals are split over tensor-parallel ranks only by sequence parallelism.
    Source: list of operators in arXiv:2205.05198 section 4.1; c and w fitted.
    """
    passes = frame.by_backend("elementwise_passes")
    fused = choose(frame.column("fused_kernels") > 0, 1.0, frame.factor("unfused_elementwise_traffic"))
    compiled = choose(frame.column("compile") > 0, frame.factor("compiled_elementwise_traffic"), 1.0)
    inner = frame.factor("elementwise_inner_weight") * (mlp_width(frame, kind) + projected_width(frame))
    elements = frame.tokens * (frame.model.hidden_size / frame.sp + inner)
    # Only Megatron chooses between fused kernels and plain operators; elsewhere `passes` already is what runs.
    scale = choose(frame.backend_is("megatron", "megatron-deepspeed"), fused, 1.0) * compiled
    return streaming_seconds(passes * scale * elements * frame.width, frame.hbm) * upcast(frame)


def cast_seconds(frame: Frame, kind: LayerKind) -> Any:
    """Casting the inputs of narrow matrix products, forward; the backward casts twice as much. [s]

    Source: NVIDIA Transformer Engine user guide, FP8 primer (each input is read in 16 bits, written in 8); for NVFP4,
    arXiv:2509.25149 section 4 (read for its largest value first, rotated for the weight gradient).
    """
    inputs = 2.0 * frame.model.hidden_size + mlp_width(frame, kind) + projected_width(frame)
    per_input = lookup(
        frame.strategy.precision, PRECISIONS, lambda p: frame.factor("cast_bytes", p) if p in NARROW else 0.0
    )
    return streaming_seconds(per_input * frame.tokens * inputs, frame.hbm)


def dequantization_seconds(frame: Frame, kind: LayerKind) -> Any:
    """Expanding the 4-bit weights of one layer to 16 bits, once per pass. [s]

    Source: QLoRA, arXiv:2305.14314 section 3 (stored NF4, computed in 16 bits after dequantisation).
    """
    if frame.job.training.method != "qlora":
        return 0.0
    stored = [w for w in layer_weights(frame.model, kind) if w.linear]
    count = sum(
        w.copies * w.out_features * w.in_features / (frame.ep if w.split is Split.EXPERT else 1) for w in stored
    )
    return streaming_seconds(frame.factor("dequantization_bytes_per_parameter") * count / frame.tp, frame.hbm)


def backward_factor(frame: Frame) -> float:
    """Element-wise traffic of the backward over that of the forward."""
    return frame.factor("elementwise_backward_traffic")
