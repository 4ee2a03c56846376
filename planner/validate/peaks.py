"""Peaks of memory of one row: what the allocator handed out, what it reserved, what the device holds, each apart."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import exp, log
from statistics import NormalDist
from typing import Any, Final, Literal

from cost_models import catalog
from cost_models.ledger import MemoryLedger
from cost_models.specs.framework import FrameworkFacts
from cost_models.units import GIB
from planner.datasets.frameworks import framework_of
from planner.datasets.jobs import Case
from planner.datasets.unusable import Unusable
from planner.measurement import Measurement
from planner.uncertainty import LEVELS

MemoryKind = Literal["allocated", "reserved", "device"]
OOM_RISK: Final = 0.01
"""Risk at which verdicts are drawn, the default of a request."""
_GB: Final = 10**9
_KINDS: Final[tuple[tuple[str, MemoryKind], ...]] = (
    (r"reserv|cached", "reserved"), (r"alloc|active", "allocated"), (r"smi|nvml|process|device|vram", "device"),
)  # fmt: skip
_BESIDE: Final[tuple[tuple[str, MemoryKind], ...]] = (
    ("allocated", "allocated"), ("reserved", "reserved"), ("process", "device"),
)  # fmt: skip
"""Facts of the notes that state a peak of another kind than the printed one."""
_TRAINING: Final = frozenset({"first_step", "step"})
Price = Callable[[Case], MemoryLedger]
Replay = Callable[[Case, MemoryLedger], float | None]
"""Reserved over allocated bytes, or None where the ledger's own factor stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """A measured peak and its prediction. [bytes]"""

    kind: MemoryKind
    measured: float
    predicted: float
    intervals: dict[str, tuple[float, float]]
    """Central, by level in percent; over all scenarios where some choice is open."""
    scenarios: tuple[tuple[str, float], ...] = ()
    """What is predicted under each choice that the row leaves open, the priced one first; empty where none is open."""


def replaced_facts(case: Case) -> dict[str, FrameworkFacts]:
    """Facts of the back end as the run had them, where they differ from the catalogue's."""
    if not case.framework_changes:
        return {}
    name = case.configuration.backend.name
    return {name: catalog.framework(name).model_copy(update=dict(case.framework_changes))}


def memory_kind(row: Measurement) -> MemoryKind:
    """What the printed peak counts: `allocated` or `reserved` by the allocator, or all that the `device` holds.

    Raises:
        Unusable: not said, or not known.
    """
    for pattern, kind in _KINDS:
        if re.search(pattern, row.mem_kind.lower()):
            return kind
    raise Unusable(f"mem_kind {row.mem_kind or 'not stated'}")


def memory_unit(row: Measurement) -> str:
    """GB or GiB: stated, or what the framework logs."""
    return row.facts.get("memory_unit") or framework_of(row)[0].memory_unit


def stated_peaks(row: Measurement) -> Iterator[tuple[MemoryKind, float]]:
    """The printed peak, then those of other kinds that the notes state. [bytes]"""
    if "peak_mem_gb" in row.unreadable:
        raise Unusable("unreadable cell: peak_mem_gb")
    unit = GIB if memory_unit(row) == "GiB" else _GB
    printed = memory_kind(row)
    yield printed, float(row.peak_mem_gb or 0) * unit
    for fact, kind in _BESIDE:
        try:
            size = float(row.facts.get(fact, ""))
        except ValueError:
            continue
        if kind != printed and size > 0:
            yield kind, size * unit


def peak(row: Measurement, case: Case, price: Price, replay: Replay, kind: MemoryKind, measured: float) -> Peak:
    """The prediction beside one stated peak.

    Where sequence lengths vary, no one replay is the run's: the measured factor stands, or 1 where the loop empties
    the cache.

    Raises:
        Unusable: the device is ambiguous and its candidates differ in what is predicted.
    """
    ledger = price(case)
    whole = case.job.training.load == "whole_on_device"
    replayed = kind != "allocated" and row.facts.get("lengths") != "variable"
    ratio = replay(case, ledger) if replayed else None
    if framework_of(row)[0].empties_cache and not replayed:
        ratio = 1.0
    predicted = predicted_peak(row, ledger, kind, whole_load=whole, ratio=ratio)
    for device in case.other_devices if case.ambiguous_device else ():
        if kind != "allocated" or predicted_peak(row, price(on_device(case, device)), kind) != predicted:
            raise Unusable("ambiguous device")
    spread = ledger.allocated_quantile / ledger.allocated_median
    if kind != "allocated":
        spread *= ledger.fragmentation_quantile / ledger.fragmentation_median
    scenarios = _scenarios(row, case, price, kind, predicted)
    return Peak(
        kind=kind,
        measured=measured,
        predicted=predicted,
        intervals=_spanning([size for _, size in scenarios] or [predicted], spread),
        scenarios=scenarios,
    )


def on_device(case: Case, name: str) -> Case:
    """The case on another device of its name's candidates."""
    pool = case.job.pool.model_copy(update={"device": catalog.device(name)})
    cluster = case.job.cluster.model_copy(update={"pools": (pool,)})
    return replace(case, job=replace(case.job, cluster=cluster))


def predicted_peak(
    row: Measurement, ledger: MemoryLedger, kind: MemoryKind, *, whole_load: bool = False, ratio: float | None = None
) -> float:
    """The peak of the phases and ranks that the row covers; loading is none of them unless it takes the whole model.
    `ratio` is a replay's reserved over allocated bytes. [bytes]
    """
    phases = _TRAINING | {"eval"} if row.facts.get("memory_includes") == "eval" else _TRAINING
    phases = phases | {"load"} if whole_load else phases
    terms = peak_allocated(ledger, phases, last_stage_only=row.facts.get("memory_ranks") == "last")
    predicted = terms * ledger.allocated_median
    if kind != "allocated":
        predicted *= ledger.fragmentation_median if ratio is None else ratio
    if kind == "device":
        predicted += ledger.context_bytes + ledger.communicator_bytes
    return predicted


def _scenarios(
    row: Measurement, case: Case, price: Price, kind: MemoryKind, predicted: float
) -> tuple[tuple[str, float], ...]:
    """Every combination of the choices that the row leaves open, the priced one first."""
    kernels = (case.configuration.attention, *case.open_attention)
    losses: tuple[tuple[str, Mapping[str, Any]], ...] = (("", {}), *case.open_losses)
    found: list[tuple[str, float]] = []
    for kernel in kernels:
        for name, changes in losses:
            other = replace(
                case,
                configuration=case.configuration.model_copy(update={"attention": kernel}),
                framework_changes={**case.framework_changes, **changes},
            )
            label = f"attention={kernel}" + (f" cross_entropy={name}" if name else "")
            found.append((label, predicted_peak(row, price(other), kind) if found else predicted))
    return tuple(found) if len(found) > 1 else ()


def _spanning(sizes: list[float], quantile: float) -> dict[str, tuple[float, float]]:
    """From the lowest scenario's lower end to the highest one's upper end."""
    low, high = central(min(sizes), quantile), central(max(sizes), quantile)
    return {level: (low[level][0], high[level][1]) for level in low}


def peak_allocated(ledger: MemoryLedger, phases: frozenset[str], *, last_stage_only: bool = False) -> float:
    """The most that any instant of these phases allocates, over all stages or on the last one. [bytes]"""
    stages = ledger.stages[-1:] if last_stage_only else ledger.stages
    sizes = [stage.allocated(at) for stage in stages for at in stage.instants if ledger.phase_of[at] in phases]
    return max(sizes) if sizes else max(stage.allocated(at) for stage in stages for at in stage.instants)


def central(median: float, quantile: float) -> dict[str, tuple[float, float]]:
    """Central log-normal intervals from the factor between the median and the (1 - OOM_RISK) quantile."""
    if quantile <= 1:
        return {}
    sigma = log(quantile) / NormalDist().inv_cdf(1 - OOM_RISK)
    intervals = {}
    for level in LEVELS:
        factor = exp(NormalDist().inv_cdf((1 + float(level) / 100) / 2) * sigma)
        intervals[str(level)] = (median / factor, median * factor)
    return intervals
