"""Runs that ran out of memory although they were predicted to fit: what that device needs is more than is predicted."""

from collections.abc import Sequence
from typing import Final

from cost_models.calibration import Calibration, Factor
from cost_models.memory import regime_of, regimes_of
from planner.fitting.sifting import beyond
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

    .. math:: m' = \max_i \frac{\max(U_i - C_i,\; A_i + R_i)}{\hat A_i}

    with usable memory U, context C, what the run held (A) and asked for (R) when it failed, and its median allocation
    as predicted. The median share m of every regime of that back end becomes m', and the 99th percentile grows alike: a
    plan that allocates as much does not fit, whatever its regime and communicators. A failure is contradicted where at
    least three runs, and more than there are failures, were predicted as full and ran; another regime follows it where
    no such runs of its own contradict. Sizes that no device can hold are set aside; the failure counts.
    """
    ran = [one for one in found if one.run.outcome == "ok"]
    failed = [one for one in found if one.run.outcome == "oom"]
    needs: dict[tuple[str, str], list[Seen]] = {}
    aside = []
    for one in failed:
        kind = _kind(one, calibration)
        aside += _impossible(one)
        fuller = _as_full(ran, one, kind, calibration)
        alike = sum(_share(other) <= _share(one) for other in failed if _kind(other, calibration) == kind)
        if fuller >= max(ENOUGH_RAN, alike + 1):
            why = f"{fuller} runs that were predicted to need as much did not run out of memory"
            aside.append(SetAside(ref=one.run.ref, quantity="oom", why=why))
        else:
            needs.setdefault(kind, []).append(one)
    changes: dict[str, Factor] = {}
    for (regime, family), those in sorted(needs.items()):
        here, share = calibration.on(family), max(map(_needed, those)) * ABOVE
        if share <= here("fragmentation", regime):
            continue
        for kin in regimes_of(regime):
            fuller = min(_as_full(ran, one, (kin, family), calibration) for one in those)
            if kin != regime and fuller >= ENOUGH_RAN:
                continue
            factor = share / here("fragmentation", kin)
            for name in FACTORS if factor > 1.0 else ():
                before, key = here(name, kin), f"{name}.{kin}@{family}"
                source = (
                    f"{len(those)} runs on {family} ran out of memory that were predicted to fit; before: {before:g}"
                )
                raised = Factor(value=float(f"{before * factor:.4g}"), source=source)
                changes[key] = max(changes.get(key, raised), raised, key=lambda one: one.value)
    return changes, aside


def _as_full(ran: Sequence[Seen], failed: Seen, kind: tuple[str, str], calibration: Calibration) -> int:
    """Runs of a kind that were predicted to take as much as one that failed, and ran."""
    return sum(_share(one) >= _share(failed) for one in ran if _kind(one, calibration) == kind)


def _impossible(one: Seen) -> list[SetAside]:
    """Sizes of a failure that its device cannot have held, or been asked for by a plan that was predicted to fit."""
    device = one.foretold.job.device
    sizes = {"peak_allocated_bytes": one.run.peak_allocated_bytes, "requested_bytes": one.run.requested_bytes}
    found = {
        name: beyond(size or 0, device, "asked for" if name == "requested_bytes" else "held")
        for name, size in sizes.items()
    }
    return [SetAside(ref=one.run.ref, quantity=name, why=why) for name, why in found.items() if why]


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
    return memory.allocated_bytes * memory.allocated_median * memory.fragmentation_median / _room(one)


def _needed(one: Seen) -> float:
    """What the run needed at least, over what was predicted to be allocated. Room that communicators were predicted to
    take is counted in: a plan with fewer of them has it.
    """
    memory, run, device = one.foretold.memory, one.run, one.foretold.job.device
    sizes = [size for size in (run.peak_allocated_bytes, run.requested_bytes) if size and not beyond(size, device)]
    most = memory.usable_bytes - memory.context_bytes
    return max(most, float(sum(sizes))) / (memory.allocated_bytes * memory.allocated_median)
