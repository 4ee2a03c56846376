"""Rates of single kernels: matrix products by shape and dtype, copies, attention."""

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

GEMMS: Final = ((1024, 1024, 1024), (4096, 4096, 4096), (8192, 8192, 8192), (2048, 4096, 14336), (8192, 1024, 2816))
"""(m, k, n)"""
ATTENTIONS: Final = ((2, 32, 2048, 128), (1, 32, 8192, 128), (8, 12, 1024, 64))
"""(batch, heads, sequence, head width)"""
TINY_GEMMS: Final = ((64, 64, 64), (64, 128, 32))
TINY_ATTENTIONS: Final = ((1, 2, 32, 16),)
HEADER: Final = ("gpu", "kernel", "dtype", "shape", "seconds", "rate", "unit")
_DTYPES: Final = ("float32", "bfloat16", "float16")
_REPEATS: Final = 10


def rows(device: Any, *, tiny: bool) -> Iterator[tuple[str, str, str, float, float, str]]:
    """(kernel, dtype, shape, seconds, rate, unit)"""
    yield from _gemms(device, TINY_GEMMS if tiny else GEMMS)
    yield _copy(device, 2**20 if tiny else 2**31)
    yield from _attentions(device, TINY_ATTENTIONS if tiny else ATTENTIONS)


def _gemms(device: Any, shapes: Any) -> Iterator[tuple[str, str, str, float, float, str]]:
    import torch

    for dtype in _DTYPES:
        for m, k, n in shapes:
            left = torch.randn(m, k, device=device).to(getattr(torch, dtype))
            right = torch.randn(k, n, device=device).to(getattr(torch, dtype))
            seconds = median_seconds(lambda left=left, right=right: left @ right, device)  # type: ignore[misc]
            yield "gemm", dtype, f"{m}x{k}x{n}", seconds, 2.0 * m * k * n / seconds, "FLOP/s"


def _copy(device: Any, size: int) -> tuple[str, str, str, float, float, str]:
    import torch

    source = torch.empty(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    seconds = median_seconds(lambda: target.copy_(source), device)
    return "copy", "uint8", str(size), seconds, 2 * size / seconds, "bytes/s"


def _attentions(device: Any, shapes: Any) -> Iterator[tuple[str, str, str, float, float, str]]:
    """Causal attention forward and backward, by the kernels that torch has here."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    kinds = {"flash": SDPBackend.FLASH_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION, "math": SDPBackend.MATH}
    for name, kind in kinds.items():
        for batch, heads, length, width in shapes:
            shape = (batch, heads, length, width)
            q, k, v = (torch.randn(shape, device=device, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))

            def both(q: Any = q, k: Any = k, v: Any = v) -> None:
                out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
                out.sum().backward()

            try:
                with sdpa_kernel(kind):
                    seconds = median_seconds(both, device)
            except RuntimeError:  # no such kernel for this device, or too large for it
                continue
            # Two products forward and four backward over half of the pairs (arXiv:2307.08691 section 4.1 counts 3.5 x).
            flops = 3.5 * 4 * batch * heads * length * length * width / 2
            yield f"attention-{name}", "bfloat16", "x".join(map(str, shape)), seconds, flops / seconds, "FLOP/s"


def median_seconds(work: Callable[[], Any], device: Any) -> float:
    """Median of repeats after two that warm up. [s]"""
    import torch

    seconds = []
    for index in range(_REPEATS + 2):
        start = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        if index >= 2:
            seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)
