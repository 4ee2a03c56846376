"""The attention core: scores, softmax and weighted values, fused or not."""

from dataclasses import dataclass
from typing import Any

from cost_models.arrays import choose
from cost_models.specs.model import LayerKind
from cost_models.time.frame import Frame, once
from cost_models.time.gemm import matmul_seconds, peak_flops, peak_rate


@dataclass(frozen=True, slots=True)
class CoreTime:
    """Seconds of one layer and micro-batch, and CPU seconds that slow kernels add to each pass."""

    forward: Any
    backward: Any
    launch: Any


def attended_tokens(sequence_length: int, window: int | None) -> float:
    r"""Keys that a query attends to under a causal mask, on average. [tokens]

    .. math:: s/2 \text{, or } w - w^2/(2s) \text{ with a window } w < s

    Source: half of the s x s scores, FlashAttention-2, arXiv:2307.08691 section 3.1; band of width w, Mistral,
    arXiv:2310.06825 section 2.
    """
    if window is None or window >= sequence_length:
        return sequence_length / 2
    return window - window * window / (2 * sequence_length)


def core_width(frame: Frame) -> float:
    """Elements per token of queries plus values over all heads: QK^T and PV multiply them with every key."""
    model = frame.model
    if model.mla is not None:
        return float(model.query_width + model.num_attention_heads * model.mla.v_head_dim)
    return 2.0 * model.query_width


def core_flops(frame: Frame, attended: float) -> Any:
    r"""Forward FLOPs of the attention core on one rank. [FLOP]

    .. math:: 2 T \bar s (d_{qk} + d_v) a / t

    Source: arXiv:2104.04473 appendix (4 B s^2 h without a mask).
    """
    return 2 * frame.tokens * attended * core_width(frame) / frame.tp


def core_seconds(frame: Frame, kind: LayerKind) -> CoreTime:
    """Attention core by the kernel of each row."""
    fused = _fused(frame, kind)
    unfused = _unfused(frame)
    eager = frame.attention_is("eager")
    return CoreTime(
        forward=choose(eager, unfused.forward, fused.forward),
        backward=choose(eager, unfused.backward, fused.backward),
        launch=choose(eager, unfused.launch, fused.launch),
    )


def in_fp32(frame: Frame) -> bool:
    """Whether queries, keys and values come in fp32 and stay so.

    Beside a 4-bit base the residual stream is fp32, and a 4-bit matrix gives back its input's dtype. FlashAttention
    casts; devices before Ampere, which it does not run on, multiply what they get.
    Source: peft `prepare_model_for_kbit_training`; bitsandbytes `nn/modules.py`, Linear4bit.forward; supported
    devices, Dao-AILab/flash-attention README.
    """
    return frame.job.training.method == "qlora" and not frame.device.multiplies("bf16")


def _fp32_rate(frame: Frame) -> Any:
    """Rate of attention's products on fp32 units. [FLOP/s]"""
    return peak_flops(frame, "fp32")[1] * frame.factor("fp32_attention_efficiency")


def _fused(frame: Frame, kind: LayerKind) -> CoreTime:
    r"""FlashAttention and its relatives: only the causal half, at the rate of the kernel.

    .. math:: f / (\text{peak} \times e_{fa} \times (d/128)^{0.3}) \text{ forward}; \quad 2.5 f / b \text{ backward}

    Source: 2.5x backward FLOPs, arXiv:2307.08691 section 4; e_fa and b fitted; heads below 128 run slower
    (same paper, figures 4 to 6). cuDNN's kernels differ from Triton's and PyTorch's, hence the back end.
    """
    rate = peak_rate(frame) * frame.by_backend_and_device("flash_efficiency")
    slower_head = min(1.0, frame.model.head_dim / 128) ** frame.factor("flash_head_exponent")
    head = float(f"{slower_head:.9g}")  # nine digits, so that no platform's power function shows
    kernel = choose(frame.attention_is("sdpa"), frame.factor("sdpa_efficiency_over_flash"), 1.0)
    window = frame.model.sliding_window if kind.attention == "sliding" else None
    flops = core_flops(frame, attended_tokens(frame.job.training.sequence_length, window))
    forward = matmul_seconds(flops, _fp32_rate(frame) if in_fp32(frame) else rate * head * kernel)
    ratio = frame.factor("flash_backward_flops") / frame.by_device_or_backend("flash_backward_efficiency")
    return CoreTime(forward=forward, backward=forward * ratio, launch=0.0)


@once
def _unfused(frame: Frame) -> CoreTime:
    r"""Batched GEMMs over all s x s scores, and the softmax between them through memory.

    .. math:: f / (\text{peak} \times 0.5\, d/(d+64)) + q\, T s a / t / \text{HBM}

    A tenth of the GEMM rate where head_dim is not a multiple of 8 (no tensor cores). Megatron's fused softmax needs
    (micro-batch x heads / tp) % 4 == 0 and a short sequence; else it falls back to separate kernels.
    Source: NVIDIA matrix multiplication guide (alignment to 16 bytes); Megatron-LM `fusions/fused_softmax.py`
    (`is_kernel_available`). All scores are computed: a mask saves nothing here, nor does a window.
    """
    model, s = frame.model, frame.job.training.sequence_length
    d = model.head_dim
    peak = peak_rate(frame)
    shape = frame.factor("unfused_attention_efficiency") * d / (d + frame.factor("unfused_attention_half_head_dim"))
    if d % 8:
        shape = shape * frame.factor("unaligned_head_efficiency")
    fallback = softmax_fallback(frame)
    scores = frame.tokens * s * model.num_attention_heads / frame.tp
    per_score = frame.by_backend("softmax_bytes_per_score") * frame.width / 2
    traffic = per_score * choose(fallback, frame.factor("softmax_fallback_traffic"), 1.0) * scores / frame.hbm
    rate = peak * shape
    if in_fp32(frame):
        rate, traffic = _fp32_rate(frame), traffic * frame.factor("fp32_softmax_traffic")
    gemm = matmul_seconds(core_flops(frame, float(s)), rate)
    return CoreTime(
        forward=gemm + traffic,
        backward=2 * gemm + frame.factor("softmax_backward_traffic") * traffic,
        launch=choose(fallback, frame.factor("softmax_fallback_seconds"), 0.0),
    )


@once
def softmax_fallback(frame: Frame) -> Any:
    """Rows whose Megatron softmax cannot be the fused kernel; other back ends have none to lose."""
    batch = frame.column("micro_batch_size") * frame.model.num_attention_heads / frame.tp
    long = frame.job.training.sequence_length > frame.factor("fused_softmax_max_tokens")
    unfit = (batch % 4 != 0) | (frame.column("fused_kernels") == 0) | long
    return frame.backend_is("megatron", "megatron-deepspeed") & unfit
