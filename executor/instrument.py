"""The measuring context of a training script: a few lines in any loop.

    from executor.instrument import Instrument

    with Instrument.from_environment() as run:      # after the imports, before the model is built
        ...
        for batch in batches:
            with run.step():
                loss = train_one_step(batch)
            run.record_loss(loss)

Under `meshwright-exec run` the launcher names the report directory in the environment; without it nothing is written.
The order of steps is fixed: warm-up, one step for the resident peak, one step under the memory tracker (CPU), one to
settle, timed steps with no tool attached, one under the profiler, then the rest of the training untouched.
"""

import math
import os
import statistics
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from executor import peaks
from executor.caps import cap_memory
from executor.endings import outcome_of, requested_bytes
from executor.environment import MEMORY_CAP, REPORT, SLOWDOWN, TIMED_STEPS, WARMUP_STEPS
from executor.files import private_directory, said, write_text
from executor.guards import Guards
from executor.measured import MemoryPeak, Phase, RankReport, StepTimes, TimeSplit, installed_releases
from executor.profile import profiled

if TYPE_CHECKING:
    import torch

DEFAULT_WARMUP_STEPS = 3
DEFAULT_TIMED_STEPS = 10
_RESIDENT_STEP, _TRACKED_STEP, _SETTLING_STEP, _MEMORY_STEPS = range(4)
"""Steps after the warm-up; the third is not looked at, it fills the heap again."""
_PROFILED_STEPS = 1
"""After the timed ones."""
_RECENT, _SAMPLES = 20, 64


@dataclass(kw_only=True)
class Instrument:
    """Times steps and reads peaks of this process. One per process, used as a context manager."""

    report_directory: Path | None = None
    warmup_steps: int = DEFAULT_WARMUP_STEPS
    timed_steps: int = DEFAULT_TIMED_STEPS
    losses: list[float] = field(default_factory=list)
    _loss_steps: list[int] = field(default_factory=list)
    _seconds: list[float] = field(default_factory=list)
    _cpu_seconds: list[float] = field(default_factory=list)
    _resident: dict[Phase, int] = field(default_factory=dict)
    _allocated: int | None = None
    _by_phase: dict[Phase, int] = field(default_factory=dict)
    _device_used: tuple[int, str] | None = None
    _busy: deque[float] = field(default_factory=lambda: deque(maxlen=_SAMPLES))
    _steps: int = 0
    _current: Phase = "load"
    _kept_at: float = -math.inf
    _keeping_seconds: float = 0.0
    _split: TimeSplit | None = None
    _recent: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))
    _waits: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))
    _samples: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=_SAMPLES))
    _left: float | None = None
    _inside: float = 0.0
    _hooks: float = 0.0
    memory_cap: int | None = None
    guards: Guards | None = None

    @classmethod
    def from_environment(cls) -> Self:
        """As the launcher asked through the environment."""
        report = os.environ.get(REPORT)
        return cls(
            report_directory=Path(report) if report else None,
            warmup_steps=int(os.environ.get(WARMUP_STEPS, DEFAULT_WARMUP_STEPS)),
            timed_steps=int(os.environ.get(TIMED_STEPS, DEFAULT_TIMED_STEPS)),
            memory_cap=int(os.environ[MEMORY_CAP]) if MEMORY_CAP in os.environ else None,
            guards=Guards(slowdown=float(os.environ[SLOWDOWN])) if SLOWDOWN in os.environ else None,
        )

    @property
    def needed_steps(self) -> int:
        """Fewest steps of a training that measures everything."""
        return self.warmup_steps + _MEMORY_STEPS + self.timed_steps + _PROFILED_STEPS

    def __enter__(self) -> Self:
        """Take the baseline and start the phase `load`."""
        import torch

        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._peaks: peaks.Peaks = peaks.CudaPeaks() if self._device == "cuda" else peaks.CpuPeaks()
        self._peaks.reset()
        if self.memory_cap is not None and self._device == "cpu":
            cap_memory(self.memory_cap)
        self._keep()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write the report, of a failed training too: then with the peak of the phase it ended in."""
        if error is not None:
            self._resident[self._current] = max(self._resident.get(self._current, 0), self._peaks.resident())
        self._write(self.report(error))

    def _write(self, report: RankReport, *, durable: bool = True) -> None:
        if self.report_directory is None:
            return
        try:
            path = private_directory(self.report_directory) / f"rank-{report.rank}.json"
            write_text(path, report.model_dump_json(indent=2) + "\n", durable=durable)
        except OSError as error:  # a full disk ends the measurement, not the training
            sys.stderr.write(
                f"meshwright: {self.report_directory} takes no report of rank {report.rank}: {said(error)}\n"
            )
            self.report_directory = None

    def _keep(self) -> None:
        """Leave the present state on disk: it is what is known of a process that is killed outright.

        After the first step, then so seldom that it takes half a per cent of the time at most.
        """
        start = time.perf_counter()
        early = self._steps > 1 and start - self._kept_at < max(1.0, 200 * self._keeping_seconds)
        if self.report_directory is None or early:
            return
        if self._steps > self.needed_steps:  # until then the heap fills, is emptied for a tool and fills again
            self._samples.append((self._steps, self._peaks.now()))
        self._look_at_device()
        if self._steps and (share := self._peaks.utilisation()) is not None:
            self._busy.append(share)
        died = {"outcome": "killed", "error": "the process ended without a last report"}
        self._write(self.report().model_copy(update=died), durable=False)
        self._kept_at, self._keeping_seconds = start, time.perf_counter() - start

    @contextmanager
    def step(self) -> Iterator[None]:
        """One optimizer step, its micro-batches included."""
        start = time.perf_counter()
        with self._one_step():
            entered = time.perf_counter()
            yield
            left = time.perf_counter()
        untouched = self._untouched
        self._steps += 1
        if untouched:
            self._recent.append(left - entered)
            if self._left is not None:
                self._waits.append(start - self._left)
            if self.guards is not None:
                self.guards.step(left - entered, self._steps)
        self._keep()
        self._left = time.perf_counter()
        if untouched:
            self._inside += left - entered
            self._hooks += self._left - start - (left - entered)

    @property
    def _untouched(self) -> bool:
        """Whether no tool slows the present step down."""
        after = self._steps - self.warmup_steps - _MEMORY_STEPS
        return after >= 0 and after != self.timed_steps

    @contextmanager
    def _one_step(self) -> Iterator[None]:
        index = self._steps
        after_warmup = index - self.warmup_steps
        if index == 0:
            self._note("load")
            with self.phase("first_step"):
                yield
            self._current = "step"
        elif after_warmup == _RESIDENT_STEP:
            with self.phase("step"):
                yield
        elif after_warmup == _TRACKED_STEP and self._device == "cpu":
            yield from self._tracked()
        elif 0 <= after_warmup - _MEMORY_STEPS < self.timed_steps:
            yield from self._timed()
        elif after_warmup - _MEMORY_STEPS == self.timed_steps:
            with profiled() as outcome:
                yield
            self._split = outcome.split
        else:
            yield

    def _tracked(self) -> Iterator[None]:
        with peaks.tracked() as outcome:
            yield
        self._allocated = outcome.peak_bytes
        if self.memory_cap is None:  # what is kept after it is freed would count against the cap
            peaks.keep_freed_memory()

    def _timed(self) -> Iterator[None]:
        self._peaks.synchronize()
        start, cpu_start = time.perf_counter(), time.process_time()
        yield
        self._peaks.synchronize()
        self._seconds.append(time.perf_counter() - start)
        self._cpu_seconds.append(time.process_time() - cpu_start)

    @contextmanager
    def phase(self, name: Phase) -> Iterator[None]:
        """Read the peak of a phase; `with run.phase("eval")` or `"save"` in a script, steps do theirs themselves."""
        self._peaks.reset()
        before, self._current = self._current, name
        yield
        self._current = before
        self._note(name)

    def _note(self, name: Phase) -> None:
        self._resident[name] = max(self._resident.get(name, 0), self._peaks.resident())
        allocated = self._peaks.allocated()  # unknown on CPU until the tracked step
        if allocated is not None:
            self._by_phase[name] = max(self._by_phase.get(name, 0), allocated)
        if name == "step":
            self._allocated = allocated
        self._look_at_device()

    def _look_at_device(self) -> None:
        used = self._peaks.device_used()
        if used is not None:
            self._device_used = max(used, self._device_used or used)

    def _utilisation(self) -> float | None:
        """What the device told; else processor time over that of the threads which might have had it."""
        import torch

        if self._busy:
            return statistics.fmean(self._busy)
        if self._device != "cpu" or not self._seconds:
            return None
        return sum(self._cpu_seconds) / (sum(self._seconds) * int(torch.get_num_threads()))

    def record_loss(self, value: "float | torch.Tensor") -> None:
        """Keep the loss of the last step; a tensor is taken as it is, its graph is not kept."""
        number = float(value.detach() if hasattr(value, "detach") else value)
        self.losses.append(number)
        self._loss_steps.append(self._steps)
        if self.guards is not None:
            self.guards.loss(number, self._steps)

    def report(self, error: BaseException | None = None) -> RankReport:
        """What was measured so far."""
        allocated = self._allocated
        return RankReport(
            rank=int(os.environ.get("RANK", "0")),
            world_size=int(os.environ.get("WORLD_SIZE", "1")),
            device="cuda" if self._device == "cuda" else "cpu",
            outcome=outcome_of(error),
            error=None if error is None else f"{type(error).__name__}: {error}".splitlines()[0],
            phase=self._current,
            requested_bytes=requested_bytes(error),
            ended_at=None if error is None else time.time(),
            steps_done=self._steps,
            times=StepTimes(
                warmup_steps=self.warmup_steps, seconds=tuple(self._seconds), cpu_seconds=tuple(self._cpu_seconds)
            ),
            allocated=None if allocated is None else MemoryPeak(bytes=allocated, method=self._peaks.allocated_method),
            resident={
                phase: MemoryPeak(bytes=size, method=self._peaks.resident_method)
                for phase, size in self._resident.items()
            },
            allocated_by_phase={
                phase: MemoryPeak(bytes=size, method=self._peaks.allocated_method)
                for phase, size in self._by_phase.items()
            },
            device_used=MemoryPeak(bytes=self._device_used[0], method=self._device_used[1])
            if self._device_used
            else None,
            host=MemoryPeak(bytes=peaks.host_peak(), method=peaks.HOST),
            utilisation=self._utilisation(),
            split=self._split,
            data_wait_seconds=statistics.median(self._waits) if self._waits else None,
            recent_seconds=statistics.median(self._recent) if self._recent else None,
            resident_samples=tuple(self._samples),
            celsius=self._peaks.celsius(),
            hook_share=self._hooks / self._inside if self._inside else None,
            losses=tuple(loss if math.isfinite(loss) else None for loss in self.losses),
            loss_steps=tuple(self._loss_steps),
            versions=installed_releases(),
        )
