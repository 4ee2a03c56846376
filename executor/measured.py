"""What one process of a run measured: written by the instrument inside the training script, read by the launcher."""

import contextlib
import functools
import importlib.metadata
import statistics
from typing import Literal

from pydantic import Field, NonNegativeInt

from cost_models.specs.base import Spec

Phase = Literal["load", "first_step", "step", "eval", "save"]
Outcome = Literal["ok", "error", "out_of_memory", "killed", "diverged", "slow", "stopped"]


class MemoryPeak(Spec):
    """One peak and the way it was read."""

    bytes: NonNegativeInt
    method: str


class StepTimes(Spec):
    """Seconds of the timed steps, warm-up excluded."""

    warmup_steps: NonNegativeInt
    seconds: tuple[float, ...]
    cpu_seconds: tuple[float, ...] = ()
    """Processor time of all threads of the process in each: little beside the seconds where others use the cores."""

    @property
    def median_seconds(self) -> float:
        """Median of the timed steps. [s]"""
        return statistics.median(self.seconds)


class TimeSplit(Spec):
    """One profiled step of one process; the parts sum to the step, what is hidden beside them. [s]"""

    step_seconds: float
    compute: float
    communication: float
    communication_hidden: float
    optimizer: float
    offload: float
    other: float
    """Neither kernels nor messages: the interpreter, launches, waiting for a core."""

    @property
    def communication_share(self) -> float:
        """Of the step, what compute does not hide."""
        return self.communication / self.step_seconds if self.step_seconds > 0 else 0.0


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
    ended_at: float | None = None
    """When it ended badly, by the node's clock; unknown of a process that left no last report. [s since 1970]"""
    steps_done: NonNegativeInt
    times: StepTimes
    allocated: MemoryPeak | None
    """Peak of live tensors in a step after warm-up; None when the run ended before the measuring step."""
    resident: dict[Phase, MemoryPeak]
    allocated_by_phase: dict[Phase, MemoryPeak] = Field(default_factory=dict)
    """Peak of live tensors in each phase, where it costs nothing to know: on a GPU."""
    device_used: MemoryPeak | None = None
    """Most that was in use on the GPU, by whatever, when it was looked at."""
    host: MemoryPeak | None = None
    """Most host memory that the process held, from its start on."""
    utilisation: float | None = None
    """Of the GPU over the last steps; on a CPU, processor time over what the threads of the process had."""
    split: TimeSplit | None = None
    data_wait_seconds: float | None = None
    """Between the end of a step and the start of the next, median."""
    recent_seconds: float | None = None
    """Median of the last few steps."""
    resident_samples: tuple[tuple[int, int], ...] = ()
    """Steps done and what the process held then, oldest first, once every tool is done with. [bytes]"""
    celsius: float | None = None
    """Of the GPU."""
    hook_share: float | None = None
    """Time spent in the instrument itself, over that of the steps that it does not slow down on purpose."""
    losses: tuple[float | None, ...]
    """As recorded; None where it was no number."""
    loss_steps: tuple[NonNegativeInt, ...] = ()
    """The step of each loss, from 1."""
    versions: dict[str, str]

    @property
    def losses_by_step(self) -> tuple[tuple[int, float | None], ...]:
        """Step and loss, in order; a report of an earlier release has a loss for each step."""
        return tuple(zip(self.loss_steps or range(1, len(self.losses) + 1), self.losses, strict=False))


@functools.cache
def installed_releases() -> dict[str, str]:
    """Installed releases of what decides the numbers."""
    found = {}
    for name in ("torch", "deepspeed", "transformers"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found
