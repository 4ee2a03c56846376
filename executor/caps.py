"""A real cap on what a CPU process may hold beside what it had when its model was not built yet."""

import resource
from pathlib import Path
from typing import Final

STACKS_BYTES: Final = 64 * 2**20
"""Address space of threads that start later, eight of 8 MiB; their pages are hardly touched."""


def cap_memory(size: int) -> None:
    """Let this process map no more than `size` bytes beyond what it maps now; then allocations fail. [bytes]

    With freed blocks going back to the kernel (`peaks.RETURNING_MALLOC`) what is mapped follows what is live.
    Source: setrlimit(2), RLIMIT_AS.
    """
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + size + STACKS_BYTES
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
