"""The coefficients of time: one vectorised pass of the formulas over all candidates."""

from dataclasses import fields
from typing import Any, Final

import numpy as np

from cost_models.alike import folded, many, told_apart
from cost_models.arrays import FloatArray, by_candidate, taken
from cost_models.calibration import Calibration
from cost_models.job import Job
from cost_models.schedule import STAGE_CLASSES
from cost_models.strategy import Strategy
from cost_models.table import TimeTable
from cost_models.time.alike import layers, timed
from cost_models.time.frame import Frame
from cost_models.time.layer import layer_works
from cost_models.time.stage import fixed_work, layer_offload, layer_tail, stage_tail, stage_work

_CHUNK: Final = 65536
"""Candidates priced together: their columns stay in the processor's cache."""


def time_table(job: Job, strategy: Strategy, calibration: Calibration, *, tail: bool = True) -> TimeTable:
    """Coefficients of every candidate; see `TimeTable` for how they add up to a step.

    Without `tail` those of the work after the last micro-batch are left at zero.

    Raises:
        MissingCalibration: a term has no constant for this device or framework.
        BrokenRule: a precision that the device cannot compute in.
    """
    if not many(strategy):
        return _price(Frame(job=job, strategy=folded(strategy), calibration=calibration), tail)
    told, which = told_apart(timed(strategy))
    if len(told) <= _CHUNK:
        return _price(Frame(job=job, strategy=told, calibration=calibration), tail).take(which)
    order = np.argsort(told_apart(layers(told))[1], kind="stable")  # rows with equal layers together
    parts = [
        _price(Frame(job=job, strategy=told.take(order[start : start + _CHUNK]), calibration=calibration), tail)
        for start in range(0, len(told), _CHUNK)
    ]
    whole = {f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(TimeTable)}
    return TimeTable(**whole).take(np.argsort(order)[which])


def _price(frame: Frame, tail: bool) -> TimeTable:
    kinds, classes = frame.model.layer_kinds, range(len(STAGE_CLASSES))
    return TimeTable(
        layer=_layer(frame),
        stage=_stacked(frame, [stage_work(frame, c).seconds for c in classes]),
        layer_tail=_stacked(frame, [layer_tail(frame, kind).seconds if tail else 0.0 for kind in kinds]),
        layer_offload=_stacked(frame, [layer_offload(frame, kind).seconds if tail else 0.0 for kind in kinds]),
        stage_tail=_stacked(frame, [stage_tail(frame, c).seconds if tail else 0.0 for c in classes]),
        fixed=_stacked(frame, [fixed_work(frame).seconds if tail else 0.0])[:, 0],
    )


def _layer(frame: Frame) -> FloatArray:
    """Seconds of the layers by kind and recompute mode, of rows whose layers are alike worked out once. (n, J, R)"""
    few, which = frame.alike(layers)
    table = np.stack(
        [_stacked(few, [work.seconds for work in layer_works(few, kind)]) for kind in frame.model.layer_kinds], axis=1
    )
    return table if which is None else taken(table, which)


def _stacked(frame: Frame, columns: list[Any]) -> FloatArray:
    table = by_candidate(len(frame.strategy), len(columns))
    for i, column in enumerate(columns):
        table[:, i] = column
    return table
