"""Rows as batches that are priced together, and how their predictions move with the constants that they read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

import numpy as np

from cost_models.arrays import FloatArray
from cost_models.calibration import Calibration
from cost_models.errors import MissingCalibration
from cost_models.job import Job
from cost_models.time.batch import step_seconds
from planner.fitting.evidence import Sample, pooled

STEP: Final = 1e-4
"""Relative change of a constant from which a derivative is taken."""


@dataclass
class Variants:
    """What a calibration is to the formulas, with arrays for factors where several variants are priced at once."""

    values: Mapping[str, float | FloatArray]
    read: set[str] = field(default_factory=set)

    def on(self, *_: str) -> "Variants":
        """A fit takes rows of all devices: it has no scopes."""
        return self

    def __call__(self, name: str, *particulars: str) -> float | FloatArray:
        """As `Calibration.__call__`, remembering what was read."""
        keys = [f"{name}.{particular}" for particular in particulars] if particulars else [name]
        for key in keys:
            if key in self.values:
                self.read.add(key)
                return self.values[key]
        raise MissingCalibration(f"no calibration factor for {name}: tried {', '.join(keys)}")


@dataclass(frozen=True)
class Batch:
    """Rows of one job."""

    job: Job
    index: tuple[int, ...]
    read: tuple[str, ...]
    """Factors that their prices depend on."""


class Batches:
    """All rows, grouped by job. Prices are logarithms of predicted over measured."""

    def __init__(self, found: Sequence[Sample], values: Mapping[str, float] | None) -> None:
        """Group `found`; with `values`, price it once to learn what each row reads."""
        self.samples = tuple(found)
        self.measured = np.log([sample.seconds for sample in found]) if found else np.zeros(0)
        groups: dict[str, list[int]] = {}
        for index, sample in enumerate(self.samples):
            groups.setdefault(job_key(sample), []).append(index)
        self.batches = tuple(self._batch(indices, values) for indices in groups.values())

    def _batch(self, indices: list[int], values: Mapping[str, float] | None) -> Batch:
        case = self.samples[indices[0]].case
        job = Job(model=case.job.model, cluster=pooled(case), training=case.job.training)
        if values is None:
            return Batch(job, tuple(indices), ())
        recorder = Variants(values)
        self._steps(job, indices, recorder)
        return Batch(job, tuple(indices), tuple(sorted(recorder.read)))

    def _steps(self, job: Job, indices: Sequence[int], variants: Variants) -> FloatArray:
        configurations = [self.samples[i].configuration for i in indices]
        return step_seconds(job, configurations, cast(Calibration, variants))

    def readers(self) -> dict[str, list[int]]:
        """Rows whose price depends on each factor."""
        found: dict[str, list[int]] = {}
        for batch in self.batches:
            for name in batch.read:
                found.setdefault(name, []).extend(batch.index)
        return found

    def residuals(self, values: Mapping[str, float]) -> FloatArray:
        """Log of predicted over measured, by row."""
        result = np.empty(len(self.samples))
        for batch in self.batches:
            result[list(batch.index)] = np.log(self._steps(batch.job, batch.index, Variants(values)))
        return result - self.measured

    def linearised(self, values: Mapping[str, float], names: Sequence[str]) -> tuple[FloatArray, FloatArray]:
        """Residuals, shape (n,), and their derivatives by the logarithms of the named factors, shape (n, p)."""
        columns = {name: column for column, name in enumerate(names)}
        residuals, slopes = np.empty(len(self.samples)), np.zeros((len(self.samples), len(names)))
        for batch in self.batches:
            moved = [name for name in batch.read if name in columns]
            variants: dict[str, float | FloatArray] = dict(values)
            for row, name in enumerate(moved, start=1):
                array = np.full((len(moved) + 1, 1), values[name])
                array[row] *= 1 + STEP
                variants[name] = array
            logs = np.log(np.atleast_2d(self._steps(batch.job, batch.index, Variants(variants))))
            index = list(batch.index)
            residuals[index] = logs[0]
            if moved:
                change = (logs[1:] - logs[0]) / np.log1p(STEP)
                slopes[np.ix_(index, [columns[name] for name in moved])] = change.T
        return residuals - self.measured, slopes


def job_key(sample: Sample) -> str:
    """What makes two rows rows of one job, whatever their global batch."""
    job = sample.case.job
    training = job.training.model_copy(update={"global_batch_size": 1})
    model = job.model.model_dump_json(exclude={"name", "assumptions"})
    return "|".join((model, pooled(sample.case).model_dump_json(), training.model_dump_json()))
