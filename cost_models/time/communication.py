"""The part of the coefficients of time that is communication, for limits on its share of a step."""

from typing import Any

import numpy as np

from cost_models.arrays import FloatArray
from cost_models.calibration import Calibration
from cost_models.job import Job
from cost_models.ledger import COMMUNICATION
from cost_models.schedule import STAGE_CLASSES
from cost_models.strategy import Strategy
from cost_models.table import TimeTable
from cost_models.time.frame import Frame
from cost_models.time.layer import layer_works
from cost_models.time.stage import fixed_work, layer_offload, layer_tail, stage_tail, stage_work
from cost_models.time.work import Work


def communication_table(job: Job, strategy: Strategy, calibration: Calibration) -> TimeTable:
    """What of each coefficient of `time_table` is exposed communication; few rows, in columns.

    Raises:
        MissingCalibration: a term has no constant for this device or framework.
    """
    frame = Frame(job=job, strategy=strategy, calibration=calibration)
    rows, kinds, classes = len(strategy), frame.model.layer_kinds, range(len(STAGE_CLASSES))

    def told(works: list[Work]) -> FloatArray:
        columns: list[Any] = [np.broadcast_to(work.of(COMMUNICATION), (rows,)) for work in works]
        return np.stack(columns, axis=1).astype(float)

    return TimeTable(
        layer=np.stack([told(list(layer_works(frame, kind))) for kind in kinds], axis=1),
        stage=told([stage_work(frame, c) for c in classes]),
        layer_tail=told([layer_tail(frame, kind) for kind in kinds]),
        layer_offload=told([layer_offload(frame, kind) for kind in kinds]),
        stage_tail=told([stage_tail(frame, c) for c in classes]),
        fixed=told([fixed_work(frame)])[:, 0],
    )
