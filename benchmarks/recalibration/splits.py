"""Seeded splits: a third of the runs corrects the constants, the others say what that was worth."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

import numpy as np

from benchmarks.recalibration.rows import Row
from cost_models.calibration import Calibration
from planner.fitting.runs import Run, calibrated
from planner.prediction import predict
from planner.request import PlanRequest
from planner.resolve import resolve
from planner.uncertainty import memory_interval

SPLITS: Final = 30
LEVEL: Final = "90"
QUANTITIES: Final = ("memory", "time")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One quantity of one run that the update had not seen."""

    name: str
    quantity: str
    measured: float
    predicted: float
    interval: tuple[float, float]

    @property
    def error(self) -> float:
        """Relative to what was measured."""
        return abs(self.predicted - self.measured) / self.measured

    @property
    def covered(self) -> bool:
        """Whether the interval holds what was measured."""
        return self.interval[0] <= self.measured <= self.interval[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """One split: the judged runs by the shipped constants and by the corrected ones."""

    seed: int
    before: tuple[Judged, ...]
    after: tuple[Judged, ...]
    moved: tuple[str, ...]
    """Constants that the third moved."""


def run_of(row: Row, pool: dict[str, Any]) -> Run:
    """A row as the evidence that the executor's measurement of a plan is."""
    resolved = resolve(PlanRequest.read({**row.request, "cluster": {"pools": [pool]}}))
    assert resolved.configuration is not None
    return Run(
        ref=row.name,
        job=resolved.job,
        configuration=resolved.configuration,
        step_seconds=row.step_seconds,
        allocated_bytes=row.allocated_bytes,
    )


def judged(runs: Sequence[Run], calibration: Calibration) -> tuple[Judged, ...]:
    """Memory and time of every run, predicted as a plan's are."""
    found = []
    for run in runs:
        foretold = predict(run.job, run.configuration, calibration, oom_risk=0.01, replay=False)
        size, seconds = foretold.memory.allocated.median_bytes, foretold.time.step_seconds
        around = memory_interval(run.job, run.configuration, calibration, "allocated", [float(size)])
        assert run.allocated_bytes
        assert run.step_seconds
        found += [
            Judged(name=run.ref, quantity="memory", measured=run.allocated_bytes, predicted=size,
                   interval=around[LEVEL]),
            Judged(name=run.ref, quantity="time", measured=run.step_seconds, predicted=seconds,
                   interval=foretold.time.interval_seconds[LEVEL]),
        ]  # fmt: skip
    return tuple(found)


def split(runs: Sequence[Run], shipped: Calibration, seed: int) -> Split:
    """Close the loop on a random third."""
    drawn = random.Random(seed).sample(range(len(runs)), ceil(len(runs) / 3))
    rest = [run for index, run in enumerate(runs) if index not in drawn]
    update = calibrated(shipped, [runs[index] for index in drawn])
    moved = sorted({name.partition("@")[0] for told in update.told for name in told.moved})
    return Split(
        seed=seed, before=judged(rest, shipped), after=judged(rest, update.calibration), moved=tuple(moved)
    )  # fmt: skip


def medians(splits: Sequence[Split], when: str, quantity: str) -> list[float]:
    """Median error of each split."""
    return [float(np.median([j.error for j in getattr(s, when) if j.quantity == quantity])) for s in splits]


def coverage(splits: Sequence[Split], when: str, quantity: str) -> tuple[int, int]:
    """Intervals that held, of all."""
    held = [j.covered for s in splits for j in getattr(s, when) if j.quantity == quantity]
    return sum(held), len(held)
