"""What runs of plans measured, beside what was predicted."""

from datetime import datetime
from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from cost_models.specs.base import Spec
from cost_models.specs.model import BrokenRuleValue
from planner.fitting.drift import Drift
from planner.plan import Phase, Plan
from service.callers import Caller
from service.errors import NotFound, Pointed
from service.identifiers import new_id
from service.storage.repositories import Repositories
from service.storage.tables import StoredMeasurement, StoredPlan
from service.texts import Line, Lines

LONGEST_STEP = 31_622_400.0
"""A step of a year is none, whatever posts it; such a ratio would drown every other in the metrics. [s]"""
Outcome = Literal["ok", "oom", "failed"]


class Run(Spec):
    """One run of a plan, whatever rules there were when it was reported."""

    outcome: Outcome = Field(description="ok: it ran; oom: it ran out of memory; failed: it ended for another reason")
    step_seconds: PositiveFloat | None = Field(default=None, description="median of the steps after warm-up")
    peak_allocated_bytes: PositiveInt | None = Field(default=None, description="fullest rank")
    peak_reserved_bytes: PositiveInt | None = Field(default=None, description="fullest rank")
    peak_device_bytes: PositiveInt | None = Field(default=None, description="as the driver counts it, fullest device")
    requested_bytes: NonNegativeInt | None = Field(
        default=None, description="oom: size of the request that memory ran out at"
    )
    phase: Phase | None = Field(default=None, description="in which it ended, where it did not end well")
    steps: NonNegativeInt | None = Field(default=None, description="steps done")
    versions: dict[str, str] = Field(default_factory=dict, max_length=50, description="of frameworks, by name")
    notes: str = Field(default="", max_length=4000)


class MeasurementOrder(Run):
    """One run of a plan."""

    versions: dict[Line, Line] = Field(default_factory=dict, max_length=50, description="of frameworks, by name")
    notes: Lines = Field(default="", max_length=4000)

    @model_validator(mode="after")
    def _says_something(self) -> "MeasurementOrder":
        figures = (self.step_seconds, self.peak_allocated_bytes, self.peak_reserved_bytes, self.peak_device_bytes)
        if self.outcome == "ok" and all(figure is None for figure in figures):
            raise BrokenRuleValue("outcome is ok but neither a step time nor a peak is given")
        return self


class Measurement(Run):
    """A stored measurement."""

    id: str
    plan_id: str
    author: str = Field(description="who reported it")
    created_at: datetime
    ratios: dict[str, float] = Field(default_factory=dict, description="measured over predicted, by quantity")


class MeasurementAnswer(Measurement):
    """A stored measurement with what the last runs like it say of the calibration in force."""

    drift: tuple[Drift, ...] = Field(default=(), description="by quantity, of the plan's framework and device family")
    set_aside: dict[str, str] = Field(
        default_factory=dict,
        description="figures that no run of the plan can have, each with why: kept, but no constant, drift or metric "
        "follows them",
    )


def add(work: Repositories, caller: Caller, plan_id: str, order: MeasurementOrder) -> StoredMeasurement:
    """Keep a measurement of a plan.

    Raises:
        NotFound: no such plan is made.
        Pointed: no step takes so long.
    """
    if work.plans.get(caller.project_id, plan_id) is None:
        raise NotFound("no finished plan of this id is known")
    if order.step_seconds is not None and order.step_seconds > LONGEST_STEP:
        raise Pointed("/step_seconds", f"step_seconds {order.step_seconds:g} exceeds {LONGEST_STEP:g}, a year")
    row = StoredMeasurement(
        id=new_id(),
        project_id=caller.project_id,
        plan_id=plan_id,
        author=caller.name,
        outcome=order.outcome,
        content=order.model_dump(mode="json", exclude={"outcome"}, exclude_none=True),
    )
    work.measurements.add(row)
    return row


def measured(row: StoredMeasurement, plan: StoredPlan | None) -> Measurement:
    """A row as callers see it."""
    run = Run.model_validate({**row.content, "outcome": row.outcome})
    own = {"id": row.id, "plan_id": row.plan_id, "author": row.author, "created_at": row.created_at}
    return Measurement.model_validate(run.model_dump() | own | {"ratios": _ratios(run, plan)})


def with_predictions(work: Repositories, caller: Caller, rows: list[StoredMeasurement]) -> tuple[Measurement, ...]:
    """Rows beside the predictions of their plans."""
    plans = {plan.id: plan for plan in work.plans.of(caller.project_id, sorted({row.plan_id for row in rows}))}
    return tuple(measured(row, plans.get(row.plan_id)) for row in rows)


def _ratios(order: Run, plan: StoredPlan | None) -> dict[str, float]:
    prediction = None if plan is None else Plan.model_validate_json(plan.content).prediction
    if prediction is None:
        return {}
    memory = prediction.memory
    predicted = {
        "step_seconds": (order.step_seconds, prediction.time.step_seconds),
        "peak_allocated_bytes": (order.peak_allocated_bytes, memory.allocated.median_bytes),
        "peak_reserved_bytes": (order.peak_reserved_bytes, memory.reserved.median_bytes),
        "peak_device_bytes": (order.peak_device_bytes, memory.device.median_bytes),
    }
    return {name: real / foretold for name, (real, foretold) in predicted.items() if real is not None and foretold > 0}
