"""One row of measurement against one prediction, quantity by quantity."""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import exp, isfinite, log
from statistics import NormalDist
from typing import Final, Literal, TypeVar

from cost_models import catalog
from cost_models.calibration import Calibration
from cost_models.errors import MeshwrightError, MissingCalibration
from cost_models.ledger import MemoryLedger, TimeLedger
from cost_models.specs.framework import FrameworkFacts
from cost_models.units import GIB
from planner.datasets.jobs import Case, case_of
from planner.datasets.vocabulary import Unusable
from planner.measurement import Measurement
from planner.plan import Verdict
from planner.uncertainty import LEVELS, step_interval

Quantity = Literal["step_time", "peak_memory", "verdict"]
QUANTITIES: Final[tuple[Quantity, ...]] = ("step_time", "peak_memory", "verdict")
OOM_RISK: Final = 0.01
"""Risk at which verdicts are drawn, the default of a request."""
_GB: Final = 10**9
_MEMORY_NEEDS: Final = {
    "recompute": "recompute not stated",
    "vocab": "vocabulary not stated",
    "precision": "precision not modelled",
}
"""What may be assumed for time but decides memory, by the key an assumption starts with."""
_KINDS: Final = ((r"reserv", "reserved"), (r"alloc|active", "allocated"), (r"smi|process|device", "device"))
_TRAINING: Final = frozenset({"first_step", "step"})


@dataclass(frozen=True, slots=True)
class Comparison:
    """One quantity of one row: either used, with both figures, or skipped, with the reason."""

    row: Measurement
    quantity: Quantity
    reason: str = ""
    measured: float | None = None
    predicted: float | None = None
    unit: str = ""
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    verdict: Verdict | None = None
    assumed: tuple[str, ...] = ()

    @property
    def used(self) -> bool:
        """Whether the row counts."""
        return not self.reason

    @property
    def error(self) -> float | None:
        """Predicted over measured, less one."""
        if self.measured is None or self.predicted is None:
            return None
        return self.predicted / self.measured - 1


@dataclass(frozen=True, slots=True)
class Pricing:
    """The two ledgers, as functions of a case; replaced in tests."""

    time: Callable[[Case], TimeLedger]
    memory: Callable[[Case], MemoryLedger]


def shipped_pricing(calibration: Calibration) -> Pricing:
    """The formulas with this calibration."""
    from cost_models.memory import memory_ledger
    from cost_models.time import time_ledger

    def memory(case: Case) -> MemoryLedger:
        facts = replaced_facts(case)
        return memory_ledger(case.job, case.configuration, calibration, oom_risk=OOM_RISK, frameworks=facts)

    return Pricing(
        time=_once(lambda case: time_ledger(case.job, case.configuration, calibration)),
        memory=_once(memory),
    )


_Ledger = TypeVar("_Ledger")


def _once(price: Callable[[Case], _Ledger]) -> Callable[[Case], _Ledger]:
    """Price equal cases once: tables repeat a configuration under other names, dates and releases."""
    known: dict[str, _Ledger] = {}

    def priced(case: Case) -> _Ledger:
        model = case.job.model.model_dump_json(exclude={"name", "assumptions"})
        rest = (case.job.cluster, case.job.training, case.configuration)
        key = "".join((model, *(spec.model_dump_json() for spec in rest), str(case.pure_low_precision)))
        if key not in known:
            known[key] = price(case)
        return known[key]

    return priced


def replaced_facts(case: Case) -> dict[str, FrameworkFacts]:
    """Facts of the back end when the run keeps no fp32 copy: its own, with the layouts of pure 16-bit training."""
    if not case.pure_low_precision:
        return {}
    name = case.configuration.backend.name
    facts = catalog.framework(name)
    layouts = {**facts.layouts, **catalog.framework("ddp-pure-bf16").layouts}
    return {name: facts.model_copy(update={"layouts": layouts})}


def compare(row: Measurement, calibration: Calibration, pricing: Pricing) -> tuple[Comparison, ...]:
    """Every quantity that the row states."""
    stated = [
        q for q, says in zip(QUANTITIES, (row.states_time, row.states_memory, row.states_outcome), strict=True) if says
    ]
    if not stated:
        return ()
    try:
        case = case_of(row)
    except Unusable as unusable:
        return tuple(Comparison(row, quantity, str(unusable)) for quantity in stated)
    found = []
    if row.states_time:
        found.append(_guarded(row, "step_time", lambda: _step_time(row, case, calibration, pricing)))
    if row.states_memory or row.states_outcome:
        found += _memory_side(row, case, pricing)
    return tuple(found)


def _guarded(row: Measurement, quantity: Quantity, price: Callable[[], Comparison]) -> Comparison:
    try:
        return price()
    except Unusable as unusable:
        return Comparison(row, quantity, str(unusable))
    except MissingCalibration as missing:
        return Comparison(row, quantity, f"not calibrated: {missing}")
    except (MeshwrightError, ArithmeticError, LookupError, ValueError) as error:
        return Comparison(
            row,
            quantity,
            f"cannot be priced: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}",
        )


def _step_time(row: Measurement, case: Case, calibration: Calibration, pricing: Pricing) -> Comparison:
    if reason := _time_reason(row, case):
        raise Unusable(reason)
    measured = measured_step(row, case)
    step = _finite(pricing.time(case).step_seconds)
    intervals: dict[str, tuple[float, float]] = {}
    with suppress(MissingCalibration):
        intervals.update(step_interval(case.job, case.configuration, calibration, step).items())
    return Comparison(row, "step_time", "", measured, step, "s", intervals, None, case.assumed)


def _time_reason(row: Measurement, case: Case) -> str:
    """What a request cannot ask for and decides the time: 4-bit products, and fp8 scales by row."""
    if any(text.startswith("precision:") for text in case.assumed):
        return "precision not modelled"
    return "fp8 recipe not modelled: rowwise" if "rowwise" in row.precision.lower() else ""


def _finite(value: float) -> float:
    """The value; a back end that cannot run a precision has no finite one."""
    if not isfinite(value):
        raise Unusable("the back end cannot run this precision")
    return value


def measured_step(row: Measurement, case: Case) -> float:
    """Seconds of one optimizer step, from whichever of the three spellings the row has.

    Raises:
        Unusable: only a rate is stated and its sequences have no one length, so that it makes no step.
    """
    if row.step_time_s is not None:
        return row.step_time_s
    if row.facts.get("lengths") == "variable":
        raise Unusable("sequence lengths vary")
    batch = case.configuration.global_batch_size
    if row.tokens_per_s_per_gpu is not None:
        return batch * case.job.training.sequence_length / (row.tokens_per_s_per_gpu * case.configuration.world_size)
    return batch / float(row.samples_per_s or 0)


def _memory_side(row: Measurement, case: Case, pricing: Pricing) -> list[Comparison]:
    """Peak memory and verdict share one ledger."""
    quantities: list[Quantity] = ["peak_memory"] if row.states_memory else []
    quantities += ["verdict"] if row.states_outcome else []
    reason = _memory_reason(case)
    if reason:
        return [Comparison(row, quantity, reason) for quantity in quantities]
    ledgers: list[MemoryLedger] = []

    def ledger() -> MemoryLedger:
        if not ledgers:
            ledgers.append(pricing.memory(case))
            _finite(ledgers[0].conservative_bytes)
        return ledgers[0]

    found = []
    if row.states_memory:
        found.append(_guarded(row, "peak_memory", lambda: _peak_memory(row, case, ledger())))
    if row.states_outcome:
        found.append(
            _guarded(
                row,
                "verdict",
                lambda: Comparison(row, "verdict", verdict=device_verdict(ledger()), assumed=case.assumed),
            )
        )
    return found


def _memory_reason(case: Case) -> str:
    if case.ambiguous_device:
        return "ambiguous device"
    for text in case.assumed:
        key = text.partition(":")[0]
        if key in _MEMORY_NEEDS:
            return _MEMORY_NEEDS[key]
    return ""


def _peak_memory(row: Measurement, case: Case, ledger: MemoryLedger) -> Comparison:
    kind = memory_kind(row)
    unit = row.facts.get("memory_unit", "GB")
    measured = float(row.peak_mem_gb or 0) * (GIB if unit == "GiB" else _GB)
    phases = _TRAINING | {"eval"} if row.facts.get("memory_includes") == "eval" else _TRAINING
    allocated = peak_allocated(ledger, phases, last_stage_only=row.facts.get("memory_ranks") == "last")
    spread = ledger.allocated_quantile
    predicted = allocated
    if kind != "allocated":
        predicted *= ledger.fragmentation_median
        spread *= ledger.fragmentation_quantile / ledger.fragmentation_median
    if kind == "device":
        predicted += ledger.context_bytes + ledger.communicator_bytes
    assumed = case.assumed if "memory_unit" in row.facts else (*case.assumed, "memory_unit: not stated, GB assumed")
    return Comparison(row, "peak_memory", "", measured, predicted, "bytes", _central(predicted, spread), None, assumed)


def memory_kind(row: Measurement) -> str:
    """What the printed peak counts: `allocated` or `reserved` by the allocator, or all that the `device` holds.

    Raises:
        Unusable: not said, or not known.
    """
    for pattern, kind in _KINDS:
        if re.search(pattern, row.mem_kind.lower()):
            return kind
    raise Unusable(f"mem_kind {row.mem_kind or 'not stated'}")


def peak_allocated(ledger: MemoryLedger, phases: frozenset[str], *, last_stage_only: bool = False) -> float:
    """The most that any instant of these phases allocates, over all stages or on the last one. [bytes]"""
    stages = ledger.stages[-1:] if last_stage_only else ledger.stages
    sizes = [stage.allocated(at) for stage in stages for at in stage.instants if ledger.phase_of[at] in phases]
    return max(sizes) if sizes else max(stage.allocated(at) for stage in stages for at in stage.instants)


def _central(median: float, quantile: float) -> dict[str, tuple[float, float]]:
    """Central log-normal intervals from the factor between the median and the (1 - OOM_RISK) quantile."""
    if quantile <= 1:
        return {}
    sigma = log(quantile) / NormalDist().inv_cdf(1 - OOM_RISK)
    intervals = {}
    for level in LEVELS:
        factor = exp(NormalDist().inv_cdf((1 + float(level) / 100) / 2) * sigma)
        intervals[str(level)] = (median / factor, median * factor)
    return intervals


def device_verdict(ledger: MemoryLedger) -> Verdict:
    """The verdict on device memory alone: a measured row says nothing of its host's."""
    if ledger.conservative_bytes <= ledger.usable_bytes:
        return "fits"
    return "at_risk" if ledger.device_bytes <= ledger.usable_bytes else "does_not_fit"
