"""Collectives over the job's own processes, by message size."""

import statistics
import time
from collections.abc import Callable
from typing import Any, Final

from executor.backends.trainer import gather_into
from executor.probe.fit import COLLECTIVES, AlphaBeta, Collective, alpha_beta

SIZES: Final = tuple(2**power for power in (12, 14, 16, 18, 20, 22, 24, 25))
"""Of the whole message. [bytes]"""
REPEATS: Final = 7


def measure(device: Any) -> dict[Collective, AlphaBeta]:
    """Each collective, median of the slowest process; nothing with one process."""
    import torch

    processes = torch.distributed.get_world_size()
    if processes == 1:
        return {}
    found = {}
    for collective in COLLECTIVES:
        points = [(size, _seconds(collective, size, processes, device)) for size in SIZES]
        found[collective] = alpha_beta(collective, processes, points)
    return found


def _seconds(collective: Collective, size: int, processes: int, device: Any) -> float:
    import torch
    import torch.distributed as dist

    whole = torch.ones(size // 4, device=device)
    part = torch.ones(size // 4 // processes, device=device)
    other = torch.empty_like(whole)
    # Renamed in torch 2.13.
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    run: dict[str, Callable[[], Any]] = {
        "all_reduce": lambda: dist.all_reduce(whole),
        "all_gather": lambda: gather_into(whole, part),
        "reduce_scatter": lambda: scatter(part, whole),
        "all_to_all": lambda: dist.all_to_all_single(other, whole),
    }
    seconds = []
    for index in range(REPEATS + 1):
        dist.barrier()
        start = time.perf_counter()
        run[collective]()
        if device.type == "cuda":
            torch.cuda.synchronize()
        if index:
            seconds.append(time.perf_counter() - start)
    slowest = torch.tensor([statistics.median(seconds)], device=device)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return float(slowest)
