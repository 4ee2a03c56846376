"""The coefficients of time: one vectorised pass of the formulas over all candidates."""

from dataclasses import fields
from typing import Any, Final

import numpy as np

from cost_models.arrays import FloatArray
from cost_models.calibration import Calibration
from cost_models.job import Job
from cost_models.schedule import STAGE_CLASSES
from cost_models.strategy import Strategy
from cost_models.table import TimeTable
from cost_models.time.frame import Frame
from cost_models.time.layer import layer_works
from cost_models.time.stage import fixed_work, layer_offload, layer_tail, stage_tail, stage_work

_CHUNK: Final = 8192
"""Candidates priced together: their columns stay in the processor's cache."""


def time_table(job: Job, strategy: Strategy, calibration: Calibration) -> TimeTable:
    """Coefficients of every candidate; see `TimeTable` for how they add up to a step.

    Raises:
        MissingCalibration: a term has no constant for this device or framework.
        BrokenRule: a precision that the device cannot compute in.
    """
    n = len(strategy)
    if n <= _CHUNK or np.ndim(strategy.tensor_parallel) == 0:
        return _price(Frame(job=job, strategy=strategy, calibration=calibration))
    parts = [
        _price(Frame(job=job, strategy=strategy.take(slice(start, start + _CHUNK)), calibration=calibration))
        for start in range(0, n, _CHUNK)
    ]
    return TimeTable(**{f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(TimeTable)})


def _price(frame: Frame) -> TimeTable:
    rows, kinds, classes = len(frame.strategy), frame.model.layer_kinds, range(len(STAGE_CLASSES))

    def stacked(columns: list[Any]) -> FloatArray:
        table = np.empty((rows, len(columns)))
        for i, column in enumerate(columns):
            table[:, i] = column
        return table

    layer = np.stack([stacked([work.seconds for work in layer_works(frame, kind)]) for kind in kinds], axis=1)
    return TimeTable(
        layer=np.ascontiguousarray(layer),
        stage=stacked([stage_work(frame, c).seconds for c in classes]),
        layer_tail=stacked([layer_tail(frame, kind).seconds for kind in kinds]),
        layer_offload=stacked([layer_offload(frame, kind).seconds for kind in kinds]),
        stage_tail=stacked([stage_tail(frame, c).seconds for c in classes]),
        fixed=stacked([fixed_work(frame).seconds])[:, 0].copy(),
    )
