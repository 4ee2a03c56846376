"""A real cap on what a CPU process may hold beside what it had when its model was not built yet."""

import resource
from pathlib import Path
from typing import TYPE_CHECKING, Final

from executor.errors import PlanRefused
from executor.probe.node import read_memory

if TYPE_CHECKING:
    from planner.plan import Prediction

STACKS_BYTES: Final = 64 * 2**20
"""Address space of threads that start later, eight of 8 MiB; their pages are hardly touched."""
_LEAST_BYTES: Final = 2**20


def check_cap(size: int, prediction: "Prediction", *, kind: str) -> tuple[str, ...]:
    """Hold a cap against the device, this node and the plan; a note where the plan is predicted to exceed it.

    Raises:
        PlanRefused: the plan is for GPUs, or no process could train in so little or have so much.
    """
    if kind != "cpu":
        raise PlanRefused("--memory-cap caps processes that train on a CPU, the plan is for GPUs")
    check_size("--memory-cap", size)
    foretold = prediction.memory.allocated.median_bytes
    if foretold <= size:
        return ()
    return (f"the plan is predicted to hold {foretold} bytes, above the cap of {size}: it will run out of memory",)


def check_size(option: str, size: int, processes: int = 1) -> None:
    """Hold what each of some processes may take against what this node has. [bytes]

    Raises:
        PlanRefused: naming both sides.
    """
    whole = read_memory()["MemTotal"]
    if size < _LEAST_BYTES:
        raise PlanRefused(f"{option} {size} bytes is less than {_LEAST_BYTES}, which no training does with")
    if size * processes > whole:
        each = f"{processes} x " if processes > 1 else ""
        raise PlanRefused(f"{option} {each}{size} bytes exceeds this node's {whole}")


def cap_memory(size: int) -> None:
    """Let this process map no more than `size` and STACKS_BYTES beyond what it maps now; then allocations fail. [bytes]

    With freed blocks going back to the kernel (`peaks.RETURNING_MALLOC`) what is mapped follows what is live.
    Source: setrlimit(2), RLIMIT_AS.
    """
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + size + STACKS_BYTES
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
