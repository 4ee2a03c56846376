"""Runs that ran out of memory although they were predicted to fit: what that device needs is more than is predicted."""

from collections.abc import Sequence
from typing import Final

from cost_models.calibration import Calibration, Factor
from cost_models.memory import regime_of
from planner.fitting.site_runs import Seen, SetAside

FACTORS: Final = ("fragmentation", "fragmentation_q99")
"""What a device needs over what is allocated, median and 99th percentile: both are raised alike, so that at no risk a
plan that has run out of memory is called safe."""
ABOVE: Final = 1.001
"""A run that fails needs more than there was; how much more is not known."""
ENOUGH_RAN: Final = 3
"""Runs as full that did fit, from which a single failure tells of something else."""


def shortages(calibration: Calibration, found: Sequence[Seen]) -> tuple[dict[str, Factor], list[SetAside]]:
    r"""Factors by device family and regime of memory, and the failures that others contradict.

    .. math:: f = \max_i \frac{\max(U_i - F_i,\; A_i + R_i)}{\hat A_i\, m}

    with usable memory U, context and communicators F, what the run held (A) and asked for (R) when it failed, its
    predicted allocation, and the allocator's median share m. A failure is contradicted where at least three runs, and
    more than there are failures, were predicted as full and ran.
    """
    ran = [one for one in found if one.run.outcome == "ok"]
    failed = [one for one in found if one.run.outcome == "oom"]
    needs: dict[tuple[str, str], list[float]] = {}
    aside = []
    for one in failed:
        kind = _kind(one, calibration)
        fuller = sum(_share(other) >= _share(one) for other in ran if _kind(other, calibration) == kind)
        alike = sum(_share(other) <= _share(one) for other in failed if _kind(other, calibration) == kind)
        if fuller >= max(ENOUGH_RAN, alike + 1):
            why = f"{fuller} runs that were predicted to need as much did not run out of memory"
            aside.append(SetAside(ref=one.run.ref, quantity="oom", why=why))
        else:
            needs.setdefault(kind, []).append(_needed(one))
    changes: dict[str, Factor] = {}
    for (regime, family), ratios in sorted(needs.items()):
        factor = max(ratios) * ABOVE
        for name in FACTORS if factor > 1.0 else ():
            before = calibration.on(family)(name, regime)
            source = f"{len(ratios)} runs on {family} ran out of memory that were predicted to fit; before: {before:g}"
            changes[f"{name}.{regime}@{family}"] = Factor(value=float(f"{before * factor:.4g}"), source=source)
    return changes, aside


def _kind(one: Seen, calibration: Calibration) -> tuple[str, str]:
    said = one.foretold
    return regime_of(said.job, said.configuration, calibration), said.job.device.family


def _room(one: Seen) -> float:
    """What the device has for tensors. [bytes]"""
    memory = one.foretold.memory
    return memory.usable_bytes - memory.context_bytes - memory.communicator_bytes


def _share(one: Seen) -> float:
    """Of that, what was predicted to be taken."""
    memory = one.foretold.memory
    return memory.allocated_bytes * memory.fragmentation_median / _room(one)


def _needed(one: Seen) -> float:
    """What the run needed at least, over what was predicted."""
    memory, run = one.foretold.memory, one.run
    held = (run.peak_allocated_bytes or 0) + (run.requested_bytes or 0)
    return max(_room(one), float(held)) / (memory.allocated_bytes * memory.fragmentation_median)
