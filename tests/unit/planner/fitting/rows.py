"""Published rows for the tests of fitting, and rows made from a known calibration."""

from functools import cache

from cost_models.calibration import Calibration
from cost_models.time import time_ledger
from planner.datasets.header import read_directory
from planner.fitting.evidence import samples
from planner.fitting.shipping import folder
from planner.measurement import Measurement


@cache
def published() -> tuple[Measurement, ...]:
    """Every shipped row."""
    return tuple(read_directory(folder() / "measurements").measurements)


def some(source: str, count: int) -> list[Measurement]:
    """The first priced rows of a source."""
    found = samples(row for row in published() if row.source == source)
    return [sample.row for sample in found[:count]]


def as_measured_by(truth: Calibration, rows: list[Measurement]) -> list[Measurement]:
    """The rows with the step times that a calibration predicts for them."""
    made = []
    for sample in samples(rows):
        step = time_ledger(sample.case.job, sample.configuration, truth).step_seconds
        changes = {"step_time_s": step, "tokens_per_s_per_gpu": None, "samples_per_s": None}
        made.append(sample.row.model_copy(update=changes))
    return made
