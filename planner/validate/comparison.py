"""One row of measurement against one prediction, quantity by quantity."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from math import isfinite
from typing import Final, Literal, TypeVar, get_args

from cost_models.calibration import Calibration
from cost_models.errors import MeshwrightError, MissingCalibration
from cost_models.ledger import MemoryLedger, TimeLedger
from planner.datasets.jobs import Case, case_of, could_not_have_run
from planner.datasets.unusable import Unusable
from planner.measurement import TIMES, Measurement
from planner.plan import KnowledgeClass, Verdict
from planner.uncertainty import kin_class, knowledge_class, memory_interval, step_interval
from planner.validate.parts import part_of
from planner.validate.peaks import (
    OOM_RISK,
    MemoryKind,
    Replay,
    memory_kind,
    memory_unit,
    peak,
    peak_allocated,
    replaced_facts,
    stated_peaks,
)
from planner.validate.row_verdict import RECOMPUTE_OPEN, Drawn, device_verdict, drawn_verdict

__all__ = [
    "OOM_RISK", "Comparison", "Pricing", "compare", "device_verdict", "memory_kind", "peak_allocated", "replaced_facts",
]  # fmt: skip

Quantity = Literal["step_time", "peak_memory", "peak_allocated", "peak_reserved", "peak_device", "verdict"]
QUANTITIES: Final[tuple[Quantity, ...]] = get_args(Quantity)
"""`peak_memory` is the printed peak, whatever it counts; the other peaks are those of rows that state several kinds."""
_QUANTITY_OF: Final[Mapping[MemoryKind, Quantity]] = {
    "allocated": "peak_allocated", "reserved": "peak_reserved", "device": "peak_device",
}  # fmt: skip
_MEMORY_NEEDS: Final = {
    "recompute": RECOMPUTE_OPEN,
    "vocab": "vocabulary not stated",
    "precision": "precision not modelled",
    "micro_batch": "micro-batch not stated",
}
"""What may be assumed for time but decides memory, by the key an assumption starts with."""


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
    drawn: Drawn | None = None
    assumed: tuple[str, ...] = ()
    part: str = ""
    """Part of the source that is reported apart."""
    scenarios: tuple[tuple[str, float], ...] = ()
    """Predictions under the choices that the row leaves open, the priced one first; empty where none is."""
    known: KnowledgeClass | None = None
    """What published runs say of the stack; of step times."""

    @property
    def used(self) -> bool:
        """Whether the row counts."""
        return not self.reason

    @property
    def verdict(self) -> Verdict | None:
        """Fits or not, where that is the quantity."""
        return None if self.drawn is None else self.drawn.verdict

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
    replay: Replay = lambda _case, _ledger: None
    """Reserved over allocated bytes of the fullest stage; None where the ledger's own factor stands."""


def shipped_pricing(calibration: Calibration) -> Pricing:
    """The formulas with this calibration."""
    from cost_models.memory import memory_ledger, reserved_ratio
    from cost_models.time import time_ledger

    def memory(case: Case) -> MemoryLedger:
        facts = replaced_facts(case)
        return memory_ledger(case.job, case.configuration, calibration, oom_risk=OOM_RISK, frameworks=facts)

    def replay(case: Case, ledger: MemoryLedger) -> float | None:
        return reserved_ratio(
            case.job, case.configuration, calibration, stage=ledger.binding[0], frameworks=replaced_facts(case)
        )

    return Pricing(
        time=_once(lambda case: time_ledger(case.job, case.configuration, calibration)),
        memory=_once(memory),
        replay=replay,
    )


_Ledger = TypeVar("_Ledger")


def _once(price: Callable[[Case], _Ledger]) -> Callable[[Case], _Ledger]:
    """Price equal cases once: tables repeat a configuration under other names, dates and releases."""
    known: dict[str, _Ledger] = {}

    def priced(case: Case) -> _Ledger:
        model = case.job.model.model_dump_json(exclude={"name", "assumptions"})
        rest = (case.job.cluster, case.job.training, case.configuration)
        key = "".join((model, *(spec.model_dump_json() for spec in rest), str(sorted(case.framework_changes.items()))))
        if key not in known:
            known[key] = price(case)
        return known[key]

    return priced


def compare(row: Measurement, calibration: Calibration, pricing: Pricing) -> tuple[Comparison, ...]:
    """Every quantity that the row states."""
    says = {"step_time": row.states_time, "peak_memory": row.states_memory, "verdict": row.states_outcome}
    stated = [quantity for quantity in QUANTITIES if says.get(quantity)]
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
    part = part_of(row, case)
    return tuple(replace(_with_interval(comparison, case, calibration), part=part) for comparison in found)


def kind_of(comparison: Comparison) -> MemoryKind | None:
    """Which kind of peak a comparison is about; None where it is about none."""
    if comparison.quantity == "peak_memory":
        return memory_kind(comparison.row)
    return next((kind for kind, quantity in _QUANTITY_OF.items() if quantity == comparison.quantity), None)


def _with_interval(comparison: Comparison, case: Case, calibration: Calibration) -> Comparison:
    """A peak with the interval of the calibration's past errors, where it states them; else as it is."""
    if not comparison.used or comparison.predicted is None or comparison.quantity == "step_time":
        return comparison
    kind = kind_of(comparison)
    sizes = [size for _, size in comparison.scenarios] or [comparison.predicted]
    found = memory_interval(case.job, case.configuration, calibration, kind, sizes, kin=case.kin) if kind else {}
    named = {str(level): bounds for level, bounds in found.items()}
    return replace(comparison, intervals=named) if named else comparison


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
        intervals.update(step_interval(case.job, case.configuration, calibration, step, kin=case.kin).items())
    known = kin_class(knowledge_class(case.job, case.configuration, calibration), kin=case.kin)
    return Comparison(row, "step_time", "", measured, step, "s", intervals, None, case.assumed, known=known)


def _time_reason(row: Measurement, case: Case) -> str:
    """What a request cannot ask for and decides the time: fp8 scales by row."""
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
    broken = [key for key in TIMES if key in row.unreadable]
    if broken:
        raise Unusable(f"unreadable cell: {broken[0]}")
    if row.step_time_s is not None:
        return row.step_time_s
    if row.facts.get("lengths") == "variable":
        raise Unusable("sequence lengths vary")
    batch = case.configuration.global_batch_size
    if row.tokens_per_s_per_gpu is not None:
        return batch * case.job.training.sequence_length / (row.tokens_per_s_per_gpu * case.configuration.world_size)
    return batch / float(row.samples_per_s or 0)


def _memory_side(row: Measurement, case: Case, pricing: Pricing) -> list[Comparison]:
    """Peaks and verdict share one ledger per case; a verdict needs less than a peak does."""
    reason = case.unmodelled or memory_reason(case)
    if not reason and could_not_have_run(row, case):
        reason = "states alone exceed the device that it ran on"

    def price(priced: Case) -> MemoryLedger:
        ledger = pricing.memory(priced)
        _finite(ledger.conservative_bytes)
        return ledger

    def verdict() -> Comparison:
        drawn = drawn_verdict(row, case, price, recompute_open=reason == RECOMPUTE_OPEN)
        return Comparison(row, "verdict", drawn=drawn, assumed=case.assumed)

    found: list[Comparison] = []
    if row.states_memory:
        found += [Comparison(row, "peak_memory", reason)] if reason else _peaks(row, case, price, pricing.replay)
    if row.states_outcome:
        closed = reason and reason != RECOMPUTE_OPEN
        found.append(Comparison(row, "verdict", reason) if closed else _guarded(row, "verdict", verdict))
    return found


def memory_reason(case: Case) -> str:
    """Why no peak can be predicted, of what was assumed; "" where one can."""
    for text in case.assumed:
        key = text.partition(":")[0]
        if key in _MEMORY_NEEDS:
            return _MEMORY_NEEDS[key]
    return ""


def _peaks(row: Measurement, case: Case, price: Callable[[Case], MemoryLedger], replay: Replay) -> list[Comparison]:
    """The printed peak as `peak_memory`; where the notes state peaks of other kinds, each of them under its own."""
    found: list[Comparison] = []
    try:
        stated = list(stated_peaks(row))
    except Unusable as unusable:
        return [Comparison(row, "peak_memory", str(unusable))]
    for position, (kind, measured) in enumerate(stated):
        one = _guarded(row, "peak_memory", partial(_one_peak, row, case, price, replay, kind, measured))
        if position == 0:
            found.append(one)
        if len(stated) > 1:
            found.append(replace(one, quantity=_QUANTITY_OF[kind]))
    return found


def _one_peak(
    row: Measurement, case: Case, price: Callable[[Case], MemoryLedger], replay: Replay, kind: MemoryKind,
    measured: float,
) -> Comparison:  # fmt: skip
    found = peak(row, case, price, replay, kind, measured)
    assumed = (
        case.assumed
        if "memory_unit" in row.facts
        else (*case.assumed, f"memory_unit: not stated, {memory_unit(row)} assumed")
    )
    return Comparison(
        row, "peak_memory", "", found.measured, found.predicted, "bytes", found.intervals, None, assumed,
        scenarios=found.scenarios,
    )  # fmt: skip
