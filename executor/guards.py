"""What ends a run on purpose, so that it can be continued better: a loss that is no number, steps that became slow."""

import math
import statistics
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from executor.errors import LossNotFinite, ThroughputCollapsed

WINDOW: Final = 5
"""Steps whose median is compared: one slow step, a save or an evaluation is no collapse."""


@dataclass(kw_only=True)
class Guards:
    """Watches losses and step times of one process."""

    slowdown: float
    """A median of `WINDOW` steps above this multiple of the first such median is a collapse; 0 never is."""
    _usual: float | None = None
    _recent: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))

    def loss(self, value: float, step: int) -> None:
        """Look at a step's loss.

        Raises:
            LossNotFinite: it is no number.
        """
        if not math.isfinite(value):
            raise LossNotFinite(f"the loss of step {step} is {value}")

    def step(self, seconds: float, step: int) -> None:
        """Look at the time of a step after warm-up that no tool slowed down.

        Raises:
            ThroughputCollapsed: the last steps took far longer than the first ones.
        """
        self._recent.append(seconds)
        if not self.slowdown or len(self._recent) < WINDOW:
            return
        median = statistics.median(self._recent)
        if self._usual is None:
            self._usual = median
        elif median > self.slowdown * self._usual:
            raise ThroughputCollapsed(
                f"steps up to {step} took {median:.3g} s in the median of {WINDOW}, {median / self._usual:.1f} times "
                f"the {self._usual:.3g} s at the start; {self.slowdown:g} times is the limit"
            )
