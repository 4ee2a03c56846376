"""How a training process ended, from its exception: what went wrong and how much memory was asked for."""

import re
from typing import Final

from executor.errors import LossNotFinite, ThroughputCollapsed
from executor.measured import Outcome

_UNITS: Final = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_REQUEST: Final = re.compile(r"[Tt]ried to allocate ([\d.]+) (bytes|[KMGT]iB)")
"""CUDA: "CUDA out of memory. Tried to allocate 2.00 GiB"; the CPU allocator: "you tried to allocate 8192 bytes"."""
_CPU_ALLOCATOR: Final = ("can't allocate memory", "not enough memory")


def outcome_of(error: BaseException | None) -> Outcome:
    """The outcome of a process that ended by `error`."""
    if error is None or (isinstance(error, SystemExit) and not error.code):
        return "ok"
    if isinstance(error, LossNotFinite | ThroughputCollapsed):
        return "diverged" if isinstance(error, LossNotFinite) else "slow"
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return "out_of_memory"
    if isinstance(error, RuntimeError) and any(words in str(error) for words in _CPU_ALLOCATOR):
        return "out_of_memory"
    return "killed" if isinstance(error, KeyboardInterrupt) else "error"


def requested_bytes(error: BaseException | None) -> int | None:
    """Size of the request that could not be met, where the message says it. [bytes]"""
    found = _REQUEST.search(str(error)) if error is not None else None
    return None if found is None else int(float(found[1]) * _UNITS[found[2]])
