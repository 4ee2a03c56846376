"""Fits or not on one measured row. What the row leaves open is tried both ways, and must not matter."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from cost_models.ledger import MemoryLedger
from cost_models.specs.configuration import RecomputeCounts
from cost_models.units import GIB
from planner.datasets.jobs import Case
from planner.datasets.unusable import Unusable
from planner.measurement import Measurement
from planner.plan import Verdict
from planner.validate.peaks import OOM_RISK

RECOMPUTE_OPEN: Final = "recompute not stated"
_GB: Final = 10**9
Price = Callable[[Case], MemoryLedger]


@dataclass(frozen=True, slots=True)
class Drawn:
    """A verdict with the probability behind it."""

    verdict: Verdict
    oom_probability: float
    headroom: float | None
    """Share of the device that the run left free; None where no peak is stated."""


def drawn_verdict(row: Measurement, case: Case, price: Price, *, recompute_open: bool) -> Drawn:
    """The verdict, which has to hold with and without recomputation where the row says nothing of it.

    Raises:
        Unusable: the verdict depends on what is open, or the device's memory is ambiguous.
    """
    if case.ambiguous_device:
        raise Unusable("ambiguous device")
    ledgers = [price(variant) for variant in ((case, _lightest(case)) if recompute_open else (case,))]
    verdicts = {device_verdict(ledger) for ledger in ledgers}
    if len(verdicts) > 1:
        raise Unusable(RECOMPUTE_OPEN)
    return Drawn(verdicts.pop(), max(map(device_probability, ledgers)), _headroom(row, ledgers[0]))


def _lightest(case: Case) -> Case:
    """Every layer recomputed, what is kept for that on the host: the least that such a run can hold."""
    stages = tuple(
        stage.model_copy(update={"recompute": RecomputeCounts(full=stage.layers)})
        for stage in case.configuration.stages
    )
    changes = {"stages": stages, "activation_offload": True}
    return replace(case, configuration=case.configuration.model_copy(update=changes))


def device_verdict(ledger: MemoryLedger) -> Verdict:
    """The verdict on device memory alone: a measured row says nothing of its host's."""
    if ledger.conservative_bytes <= ledger.usable_bytes:
        return "fits"
    return "at_risk" if ledger.device_bytes <= ledger.usable_bytes else "does_not_fit"


def device_probability(ledger: MemoryLedger) -> float:
    """Probability that the device runs out of memory; a measured row says nothing of its host. [1]"""
    return replace(ledger, host_node_bytes=0.0).oom_probability(OOM_RISK)


def _headroom(row: Measurement, ledger: MemoryLedger) -> float | None:
    if row.peak_mem_gb is None:
        return None
    size = row.peak_mem_gb * (GIB if row.facts.get("memory_unit") == "GiB" else _GB)
    if "alloc" in row.mem_kind.lower():
        size *= ledger.fragmentation_median
    return 1.0 - size / ledger.usable_bytes
