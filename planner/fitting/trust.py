"""Which of a site's rows may move a constant: those that say the same twice, counted once."""

from collections.abc import Sequence
from math import log
from typing import Final

import numpy as np

from cost_models.arrays import FloatArray
from cost_models.calibration import Calibration
from planner.fitting.batches import job_key
from planner.fitting.evidence import Sample

SIDES: Final = 1.2816
"""Standard deviations of a normal distribution to either end of its central 80 %."""
UPPER: Final = 0.75
"""Deviations are judged by this quantile: one wrong row in five is no contradiction, two are."""
UPPER_DEVIATIONS: Final = 1.1503
"""Standard deviations within which that share of a normal distribution lies."""
MOST_SPREAD: Final = 2.0
"""Most that a site's rows may scatter, in standard deviations of the errors of published stacks."""


def spread(deviations: FloatArray) -> float:
    """Standard deviation of a normal distribution with this upper quantile of absolute deviations."""
    return float(np.quantile(np.abs(deviations), UPPER)) / UPPER_DEVIATIONS if len(deviations) else 0.0


def most_spread(here: Calibration, family: str) -> float:
    """Scatter of log times above which rows are not of one kind: twice that of published rows of known stacks.

    On a device family that no published run was on, the formulas have proven themselves less: there it is twice that
    of published rows on new devices.
    """
    seen = any(key.startswith("measured_runs.") and key.endswith(f".{family}") for key in here.factors)
    known = f"{'known_stack' if seen else 'new_device'}.80"
    if not here.known("step_time_high", known):
        return MOST_SPREAD * log(2.0) / SIDES
    width = log(here("step_time_high", known) / here("step_time_low", known))
    return MOST_SPREAD * width / (2 * SIDES)


def agreeing(found: Sequence[Sample], most: float) -> list[Sample]:
    """The rows without those of configurations whose own times scatter by more than `most`."""
    kept: list[Sample] = []
    for group in _grouped(found, ""):
        times = np.log([sample.seconds for sample in group])
        if spread(times - np.median(times)) <= most:
            kept += group
    return kept


def distinct(found: Sequence[Sample]) -> list[Sample]:
    """Rows of one reference and configuration once, as the middle one of them; without a reference, equal rows."""
    return [sorted(group, key=lambda s: s.seconds)[(len(group) - 1) // 2] for group in _grouped(found, "reference")]


def _grouped(found: Sequence[Sample], by: str) -> list[list[Sample]]:
    groups: dict[str, list[Sample]] = {}
    for sample in found:
        key = f"{job_key(sample)}|{sample.configuration.model_dump_json()}"
        if by:
            row = sample.row
            key += f"|{row.source}|{row.ref}" if row.ref else row.model_dump_json(exclude={"file", "line"})
        groups.setdefault(key, []).append(sample)
    return list(groups.values())
