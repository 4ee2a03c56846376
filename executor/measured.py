"""What one process of a run measured: written by the instrument inside the training script, read by the launcher."""

import contextlib
import functools
import importlib.metadata
import statistics
from typing import Literal

from pydantic import NonNegativeInt

from cost_models.specs.base import Spec

Phase = Literal["load", "first_step", "step", "eval", "save"]
Outcome = Literal["ok", "error", "out_of_memory", "killed"]


class MemoryPeak(Spec):
    """One peak and the way it was read."""

    bytes: NonNegativeInt
    method: str


class StepTimes(Spec):
    """Seconds of the timed steps, warm-up excluded."""

    warmup_steps: NonNegativeInt
    seconds: tuple[float, ...]

    @property
    def median_seconds(self) -> float:
        """Median of the timed steps. [s]"""
        return statistics.median(self.seconds)


class RankReport(Spec):
    """One process."""

    rank: NonNegativeInt
    world_size: NonNegativeInt
    device: Literal["cpu", "cuda"]
    outcome: Outcome
    error: str | None = None
    phase: Phase | None = None
    """In which it ended."""
    requested_bytes: NonNegativeInt | None = None
    """Size of the request that memory ran out at, where the message says it."""
    steps_done: NonNegativeInt
    times: StepTimes
    allocated: MemoryPeak | None
    """Peak of live tensors in a step after warm-up; None when the run ended before the measuring step."""
    resident: dict[Phase, MemoryPeak]
    losses: tuple[float | None, ...]
    """By step; None where it was no number."""
    versions: dict[str, str]


@functools.cache
def installed_releases() -> dict[str, str]:
    """Installed releases of what decides the numbers."""
    found = {}
    for name in ("torch", "deepspeed", "transformers"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found
