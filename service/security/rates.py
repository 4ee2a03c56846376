"""Requests per minute and key: a bucket that fills steadily (token bucket). Each replica counts for itself."""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

BURST_SECONDS: Final = 10.0
"""A caller that was silent may ask at once what it may ask in so long."""
MOST_BUCKETS: Final = 10_000
"""Callers that are remembered; the one longest silent is forgotten first, and its bucket is full by then."""


class Rates:
    """Buckets by caller."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Nobody has asked."""
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, who: str, per_minute: int) -> float:
        """Count a request. How long it must wait; 0: it may pass. [seconds]"""
        rate, at = per_minute / 60.0, self._clock()
        most = max(1.0, rate * BURST_SECONDS)
        left, since = self._buckets.pop(who, (most, at))
        left = min(most, left + (at - since) * rate)
        passes = left >= 1.0
        self._buckets[who] = (left - 1.0 if passes else left, at)
        while len(self._buckets) > MOST_BUCKETS:
            self._buckets.popitem(last=False)
        return 0.0 if passes else (1.0 - left) / rate
