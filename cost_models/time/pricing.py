"""The coefficients of time: one vectorised pass of the formulas over all candidates."""

from typing import Any

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


def time_table(job: Job, strategy: Strategy, calibration: Calibration) -> TimeTable:
    """Coefficients of every candidate; see `TimeTable` for how they add up to a step.

    Raises:
        MissingCalibration: a term has no constant for this device or framework.
        BrokenRule: a precision that the device cannot compute in.
    """
    frame = Frame(job=job, strategy=strategy, calibration=calibration)
    rows, kinds, classes = len(strategy), job.model.layer_kinds, range(len(STAGE_CLASSES))

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
