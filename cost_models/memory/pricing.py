"""The memory side of the coefficient table: the terms of `instants`, added up by coefficient for all candidates."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from cost_models.alike import folded, many, told_apart
from cost_models.arrays import FloatArray, by_candidate, taken
from cost_models.calibration import Calibration
from cost_models.job import Job
from cost_models.memory.allocator import margin
from cost_models.memory.backward import peak_bytes
from cost_models.memory.hosting import host_columns
from cost_models.memory.instants import (
    BACKWARD_FIRST,
    BACKWARD_LAST,
    INSTANTS,
    LOSS,
    activation_terms,
    constant_terms,
    layer_terms,
    stage_activation_terms,
    working_terms,
)
from cost_models.memory.options import facts_of
from cost_models.memory.overheads import communicator_bytes, context_bytes
from cost_models.memory.pieces import Pieces
from cost_models.memory.setting import Setting, total
from cost_models.schedule import STAGE_CLASSES
from cost_models.specs.choices import RECOMPUTES
from cost_models.specs.framework import FrameworkFacts
from cost_models.strategy import Strategy
from cost_models.table import MemoryTable

_CHUNK = 4096
"""Candidates priced at once: their coefficients stay in a core's cache."""
_BACKWARD = (BACKWARD_LAST, BACKWARD_FIRST)
"""Instants whose working set is a layer's and depends on its recompute mode."""


def memory_table(
    job: Job,
    strategy: Strategy,
    calibration: Calibration,
    *,
    oom_risk: float,
    frameworks: Mapping[str, FrameworkFacts] | None = None,
) -> MemoryTable:
    """Coefficients of every candidate's memory, as `MemoryTable` defines them.

    `frameworks` replaces the catalogue's facts of the back ends it names.

    Raises:
        MissingCalibration: a term has no constant for this device.
        BrokenRule: oom_risk is no probability.
    """
    facts = facts_of(job.training, frameworks)
    rows = Strategy(**{name: np.atleast_1d(getattr(strategy, name)) for name in Strategy.__slots__})
    few, which = told_apart(seen_by_memory(rows)) if many(rows) else (folded(rows), None)
    table: dict[str, FloatArray] = {}
    for start in range(0, max(len(few), 1), _CHUNK):
        part = few.take(slice(start, start + _CHUNK))
        chunk = _price(Setting(job=job, strategy=part, frameworks=facts), calibration, oom_risk)
        for name, value in chunk.items():
            if name not in table:
                table[name] = by_candidate(len(few), *value.shape[1:])
            table[name][start : start + len(value)] = value
    if which is not None:
        table = {name: taken(value, which) for name, value in table.items()}
    return MemoryTable(
        **table,
        holds_activations=np.array([float(i.holds_activations) for i in INSTANTS]),
        released=np.array([float(i.released) for i in INSTANTS]),
        selector=np.array([float(i.selector) for i in INSTANTS]),
    )


def seen_by_memory(strategy: Strategy) -> Strategy:
    """The rows without what no coefficient of memory reads: how many micro-batches beyond two, in how many chunks.

    Activations on the host are counted there by micro-batches in flight.
    """
    steps, chunks = np.asarray(strategy.gradient_accumulation_steps), np.asarray(strategy.virtual_pipeline_stages)
    counted: Any = np.asarray(strategy.activation_offload) > 0
    return replace(
        strategy,
        gradient_accumulation_steps=np.where(counted, steps, np.minimum(steps, 2)),
        virtual_pipeline_stages=np.where(counted, chunks, 1),
    )


def _price(setting: Setting, calibration: Calibration, oom_risk: float) -> dict[str, FloatArray]:
    pieces = Pieces(setting=setting, calibration=calibration)
    n, kinds, classes = len(setting.strategy), range(len(setting.kinds)), range(len(STAGE_CLASSES))
    moments, modes = range(len(INSTANTS)), range(len(RECOMPUTES))
    constant = by_candidate(n, len(classes), len(moments))
    layer = by_candidate(n, len(kinds), len(moments))
    working = by_candidate(n, len(classes), len(moments), len(modes))
    activation = by_candidate(n, len(kinds), len(modes))
    for i in moments:
        for j in kinds:
            layer[:, j, i] = total(layer_terms(pieces, j, i))
        for c in classes:
            constant[:, c, i] = total(constant_terms(pieces, c, i))
        _working(pieces, working, i)
    for j in kinds:
        for r in modes:
            activation[:, j, r] = total(activation_terms(pieces, j, r))
    stage_activation = _columns(n, [total(stage_activation_terms(pieces, c)) for c in classes])
    factors = margin(setting, calibration, oom_risk)
    overhead = context_bytes(setting, calibration) + communicator_bytes(setting, calibration)
    quantile = factors.allocated_quantile * factors.fragmentation_quantile
    capacity = (usable_bytes(setting) - overhead) / quantile
    return {
        "constant": constant,
        "layer": layer,
        "stage_activation": stage_activation,
        "activation": activation,
        "working": working,
        "offload_saving": _columns(n, [s.saved_by_offload for s in pieces.layer_states]),
        "capacity": np.broadcast_to(capacity, (n,)),
        "margin": np.broadcast_to(quantile, (n,)),
        **host_columns(pieces, calibration),
    }


def _working(pieces: Pieces, working: FloatArray, instant: int) -> None:
    """The working sets of one instant. Those of a layer's backward are equal for all stage classes."""
    for r in range(len(RECOMPUTES)):
        if instant in _BACKWARD:
            working[:, :, instant, r] = np.reshape(peak_bytes(pieces, r, first=instant == BACKWARD_FIRST), (-1, 1))
        elif r == 0 or instant == LOSS:
            for c in range(len(STAGE_CLASSES)):
                working[:, c, instant, r] = total(working_terms(pieces, c, instant, r))
        else:
            working[:, :, instant, r] = working[:, :, instant, 0]


def _columns(n: int, values: list[Any]) -> FloatArray:
    result = by_candidate(n, len(values))
    for column, value in enumerate(values):
        result[:, column] = value
    return result


def usable_bytes(setting: Setting) -> float:
    """Device memory a rank may use. The ranks of a CPU node share the host's. [bytes]"""
    pool = setting.job.pool
    usable = float(pool.device.usable_memory_bytes)
    return min(usable, pool.host_memory_bytes / pool.gpus_per_node) if pool.device.kind == "cpu" else usable
