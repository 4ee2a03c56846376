"""Gradient compression: fewer bytes on the wire against kernels that compress and decompress."""

from typing import Any

import numpy as np

from cost_models.specs.choices import COMPRESSIONS
from cost_models.time.frame import Frame, lookup


def wire_bytes(frame: Frame, uncompressed: Any) -> Any:
    """Bytes per parameter that a gradient reduction moves. [bytes]

    16-bit and 8-bit casts, one sign bit (1-bit Adam, arXiv:2102.02888 section 4), the largest entries with their
    indices (Deep Gradient Compression, arXiv:1712.01887 section 3), or low-rank factors (PowerSGD, arXiv:1905.13727
    section 3: r(m + n) of m n entries, for the square h x h matrix). Never more than the uncompressed bytes.
    Selections differ from rank to rank and cannot be summed on the way: each goes to all n - 1 others, n / 2 times what
    the ring of a reduction moves (Deep Gradient Compression, section 3: all-gather).
    """

    def value(name: str) -> Any:
        if name == "none":
            return float("inf")
        if name == "top-k":
            return frame.factor("compressed_bytes_per_parameter", name) * np.maximum(frame.replicas, 2.0) / 2
        if name == "powersgd":
            return 4 * 2 * frame.factor("powersgd_rank") / frame.model.hidden_size
        return frame.factor("compressed_bytes_per_parameter", name)

    return np.minimum(uncompressed, lookup(frame.strategy.gradient_compression, COMPRESSIONS, value))


def kernel_seconds(frame: Frame, parameters: Any) -> Any:
    """Compressing and decompressing the gradients of `parameters`, memory-bound. [s]

    Source: passes over gradient and error-feedback buffers that each method's paper lists (see `wire_bytes`).
    """
    traffic = lookup(
        frame.strategy.gradient_compression,
        COMPRESSIONS,
        lambda name: 0.0 if name == "none" else frame.factor("compression_traffic_per_parameter", name),
    )
    return traffic * parameters / frame.hbm
