"""Where the time of one step goes, from torch's profiler: compute, communication, optimizer, offload, and the rest."""

import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from executor.measured import TimeSplit

Intervals = list[tuple[float, float]]
"""Begin and end. [s]"""
COMMUNICATION: Final = re.compile(r"^(gloo|nccl|mpi|ucc|xccl):|^ncclDevKernel|^ncclKernel")
"""What the back ends of torch.distributed record: host ranges on a CPU, kernels on a GPU."""
OPTIMIZER: Final = re.compile(r"^Optimizer\.step#")
OFFLOAD: Final = re.compile(r"^Memcpy (HtoD|DtoH)")
COMPUTE: Final = re.compile(r"^aten::")


@dataclass(kw_only=True)
class Profiled:
    """Outcome of `profiled`."""

    split: TimeSplit | None = None


@contextmanager
def profiled() -> Iterator[Profiled]:
    """Run one step under the profiler, which slows it down."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    cuda = torch.cuda.is_available()
    outcome = Profiled()
    with profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]) as tool:
        start = time.perf_counter()
        yield outcome
        if cuda:
            torch.cuda.synchronize()
        seconds = time.perf_counter() - start
    outcome.split = split_of([_event(event) for event in tool.events()], seconds, cuda=cuda)


def _event(event: Any) -> tuple[str, float, float, bool]:
    """Name, begin, end, and whether it ran on the GPU. [s]"""
    on_device = str(event.device_type).endswith("CUDA")
    return event.name, event.time_range.start / 1e6, event.time_range.end / 1e6, on_device


def split_of(events: Iterable[tuple[str, float, float, bool]], seconds: float, *, cuda: bool) -> TimeSplit:
    """The parts of a step of `seconds`. Communication beside compute is hidden; the parts sum to the step. [s]

    On a GPU the device's own kernels are what counts: the host runs ahead of them.
    """
    kinds: dict[str, Intervals] = {"communication": [], "optimizer": [], "offload": [], "compute": []}
    for name, begin, end, on_device in events:
        if COMMUNICATION.match(name):
            kinds["communication"].append((begin, end))
        elif OPTIMIZER.match(name):
            kinds["optimizer"].append((begin, end))
        elif OFFLOAD.match(name):
            kinds["offload"].append((begin, end))
        elif on_device or (not cuda and COMPUTE.match(name)):
            kinds["compute"].append((begin, end))
    joined = {kind: union(intervals) for kind, intervals in kinds.items()}
    optimizer = joined["optimizer"]
    compute = without(joined["compute"], optimizer)
    busy = union(compute + optimizer)
    communication = without(joined["communication"], busy)
    offload = without(joined["offload"], union(busy + communication))
    parts = {"compute": compute, "optimizer": optimizer, "communication": communication, "offload": offload}
    lengths = {kind: length(intervals) for kind, intervals in parts.items()}
    return TimeSplit(
        step_seconds=seconds,
        communication_hidden=length(joined["communication"]) - lengths["communication"],
        other=max(0.0, seconds - sum(lengths.values())),
        **lengths,
    )


def union(intervals: Intervals) -> Intervals:
    """The same time, in intervals that do not touch."""
    found: Intervals = []
    for begin, end in sorted(intervals):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((begin, end))
    return found


def without(intervals: Intervals, others: Intervals) -> Intervals:
    """What of `intervals` no other covers; both are unions."""
    left: Intervals = []
    for begin, end in intervals:
        at = begin
        for first, last in others:
            if last <= at or first >= end:
                continue
            if first > at:
                left.append((at, first))
            at = max(at, last)
        if at < end:
            left.append((at, end))
    return left


def length(intervals: Intervals) -> float:
    """Of a union. [s]"""
    return sum(end - begin for begin, end in intervals)
