"""What runs say of a calibration that could not follow them: plans that it makes warn of it."""

from collections.abc import Sequence
from math import exp

import numpy as np

from cost_models.calibration import Calibration, Factor
from planner.fitting.batches import Batches
from planner.fitting.evidence import Sample
from planner.fitting.site import Told
from planner.uncertainty import UNLEARNED, within_noise


def unlearned(calibration: Calibration, found: Sequence[Sample], told: Sequence[Told]) -> dict[str, Factor]:
    """Factors `unlearned.step_seconds.FRAMEWORK@FAMILY`: the median of measured over predicted times, where it is
    further from 1 than predictions can rank and the rows of the family moved no constant.
    """
    notes: dict[str, Factor] = {}
    why = {one.family: one.why for one in told if not one.moved}
    for framework, family in sorted({sample.stack for sample in found}):
        if family not in why:
            continue
        own = [sample for sample in found if sample.stack == (framework, family)]
        values = {key: factor.value for key, factor in calibration.on(family).factors.items()}
        ratio = exp(-float(np.median(Batches(own, None).residuals(values))))
        if not within_noise(abs(ratio - 1.0), calibration):
            source = f"{len(own)} runs, {why[family]}"
            notes[f"{UNLEARNED}.step_seconds.{framework}@{family}"] = Factor(value=float(f"{ratio:.3g}"), source=source)
    return notes
