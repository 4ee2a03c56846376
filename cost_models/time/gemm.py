"""Matrix products: the linear layers of a block and of the head."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from cost_models.arrays import Array
from cost_models.errors import BrokenRule
from cost_models.parameters import Split, Weight, layer_weights
from cost_models.specs.choices import NARROW, PRECISIONS
from cost_models.specs.model import LayerKind
from cost_models.time.frame import Frame, device_keys, lookup, once


def matmul_seconds(flops: Array, rate: Array) -> Array:
    r"""Time of matrix products. [s]

    .. math:: 2 M N K / (\text{peak} \times e)

    Source: arithmetic of a GEMM; the efficiency e is fitted per device family and type. Tile, wave and small-K
    terms are left out: on published shapes, which are large and round, they explain nothing.
    """
    return flops / rate


_PRODUCTS: Final[Mapping[str, tuple[str, ...]]] = {
    "nvfp4": ("fp4",), "fp8": ("fp8",), "fp16": ("fp16", "bf16", "fp32"), "bf16": ("bf16", "fp32"), "fp32": ("fp32",),
}  # fmt: skip
"""Types in which a precision's matrices may be multiplied, the first that a device has."""


def peak_flops(frame: Frame, precision: str) -> tuple[str, float]:
    """The dtype in which a device multiplies matrices of a precision, and its peak. [FLOP/s]

    fp16 and bf16 run at one rate on tensor cores, so either stands for the other where a device has cores for it;
    a device without tensor cores for bf16 (before Ampere) multiplies in fp32. Where no fp32 rate is published it is
    a share of the 16-bit rate.

    Raises:
        BrokenRule: the device states no usable rate.
    """
    device, peaks = frame.device, frame.device.peak_flops
    sixteen = next((peaks[dtype] for dtype in ("bf16", "fp16") if dtype in peaks), None)
    if "fp32" not in peaks and sixteen is not None:
        peaks = peaks | {"fp32": sixteen * frame.factor("unpublished_fp32_share")}
    chain = _PRODUCTS[precision]
    for dtype in chain:
        if dtype in peaks:
            return dtype, peaks[dtype]
    raise BrokenRule(f"precision {precision} needs one of {', '.join(chain)} but {device.name} has {', '.join(peaks)}")


@once
def peak_rate(frame: Frame) -> Any:
    """Peak of what stays 16-bit in a narrower run, by row: attention and head. [FLOP/s]"""
    return lookup(frame.strategy.precision, PRECISIONS, lambda p: peak_flops(frame, "bf16" if p in NARROW else p)[1])


@once
def sustained_rate(frame: Frame, *, sixteen_bit: bool = False) -> Any:
    """Rate of linear layers by row; with `sixteen_bit`, of what stays 16-bit in a narrower run. [FLOP/s]"""
    device = frame.device

    def rate(precision: str) -> float:
        dtype, peak = peak_flops(frame, "bf16" if sixteen_bit and precision in NARROW else precision)
        tensor_dtype = "bf16" if dtype == "fp16" else dtype
        keys = dict.fromkeys(f"{key}.{kind}" for key in device_keys(device) for kind in (dtype, tensor_dtype))
        return peak * frame.factor("gemm_efficiency", *keys)

    return lookup(frame.strategy.precision, PRECISIONS, rate) * frame.by_backend("framework_gemm_efficiency")


def matrix_sizes(weights: tuple[Weight, ...], frame: Frame) -> Any:
    """Elements that one rank multiplies every token with, experts excluded. [elements]

    Key-value projections are not split finer than a head; replicated matrices (routers, latent down-projections) are
    multiplied whole on every rank. Source: Megatron-LM `tensor_parallel/layers.py`.
    """
    heads = frame.model.num_key_value_heads
    total: Any = 0.0
    for w in weights:
        size = w.out_features * w.in_features if w.linear else 0
        if w.split is Split.KEY_VALUE:
            total = total + size / np.minimum(frame.tp, heads)
        elif w.split in (Split.COLUMN, Split.ROW, Split.VOCABULARY):
            total = total + size / frame.tp
        elif w.split is Split.REPLICATED:
            total = total + float(size)
    return total


def linear_flops(frame: Frame, kind: LayerKind) -> Any:
    """Forward FLOPs of the linear layers of one layer and micro-batch on one rank, experts excluded. [FLOP]"""
    return 2 * frame.tokens * matrix_sizes(layer_weights(frame.model, kind), frame)


def backward_passes(frame: Frame) -> float:
    """GEMMs of the backward per forward GEMM: input and weight gradients; frozen weights need only the first.

    Source: LoRA, arXiv:2106.09685 section 4.1 (no gradient for the frozen matrices).
    """
    return 1.0 if frame.adapters else 2.0
