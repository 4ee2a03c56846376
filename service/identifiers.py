"""Identifiers that sort by the time of their making: UUID version 7 (RFC 9562, section 5.7)."""

import secrets
import threading
import time
import uuid

_lock = threading.Lock()
_last = [0]


def new_id() -> str:
    """Milliseconds since 1970 (48 bits), 1/4096ths of one (12 bits), then 62 random bits.

    The fraction grows with every id of a process, so that ids of the same millisecond keep their order (section 6.2,
    method 3).
    """
    nanoseconds = time.time_ns()
    stamp = nanoseconds // 1_000_000 << 12 | nanoseconds % 1_000_000 * 4096 // 1_000_000
    with _lock:
        stamp = _last[0] = max(stamp, _last[0] + 1)
    value = stamp >> 12 << 80 | 0x7 << 76 | (stamp & 0xFFF) << 64 | 0b10 << 62 | secrets.randbits(62)
    return str(uuid.UUID(int=value))
