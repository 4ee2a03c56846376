"""How fast one process multiplies and moves memory, while the job's other processes do the same."""

import statistics
import time
from collections.abc import Callable
from typing import Any, Final

REPEATS: Final = 5
SHAPES: Final = {
    "cpu": ((512, 512, 512), (1024, 1024, 1024), (2048, 512, 1376), (2048, 2048, 2048)),
    "cuda": ((2048, 2048, 2048), (4096, 4096, 4096), (8192, 4096, 11008), (8192, 8192, 8192)),
}
"""(m, k, n): squares, and tokens x hidden x MLP."""
DTYPES: Final = {"cpu": ("fp32", "bf16"), "cuda": ("fp32", "bf16", "fp16")}
COPY_BYTES: Final = {"cpu": 2**28, "cuda": 2**30}


def matmul_rates(device: Any) -> dict[str, dict[str, float]]:
    """dtype -> "m x k x n" -> median rate. [FLOP/s]"""
    import torch

    kinds = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    found: dict[str, dict[str, float]] = {}
    for name in DTYPES[device.type]:
        found[name] = {}
        for m, k, n in SHAPES[device.type]:
            left = torch.randn(m, k, device=device).to(kinds[name])
            right = torch.randn(k, n, device=device).to(kinds[name])
            seconds = median_seconds(lambda left=left, right=right: left @ right, device)  # type: ignore[misc]
            found[name][f"{m} x {k} x {n}"] = 2.0 * m * k * n / seconds
    return found


def copy_rate(device: Any) -> float:
    """A large copy within the device's memory, read and write counted. [bytes/s]"""
    import torch

    source = torch.ones(COPY_BYTES[device.type] // 4, device=device)
    target = torch.empty_like(source)
    return 2 * COPY_BYTES[device.type] / median_seconds(lambda: target.copy_(source), device)


def host_to_device_rate(device: Any) -> float | None:
    """A large copy from pinned host memory; None on a CPU, which has no such way. [bytes/s]"""
    import torch

    if device.type == "cpu":
        return None
    source = torch.ones(COPY_BYTES["cpu"] // 4, pin_memory=True)
    target = torch.empty_like(source, device=device)
    return COPY_BYTES["cpu"] / median_seconds(lambda: target.copy_(source, non_blocking=True), device)


def median_seconds(work: Callable[[], Any], device: Any, repeats: int = REPEATS) -> float:
    """Median of `repeats`, after one that warms up. [s]"""
    import torch

    seconds = []
    for index in range(repeats + 1):
        start = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize()
        if index:
            seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)
