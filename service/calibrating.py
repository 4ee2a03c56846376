"""Versions of the constants: who added which, why, and from what."""

import re
from datetime import datetime
from typing import Final

from pydantic import Field, field_validator

from cost_models import catalog
from cost_models.calibration import Calibration
from cost_models.errors import BrokenRule, within
from cost_models.specs.base import Spec
from cost_models.specs.model import BrokenRuleValue
from planner import calibrations
from planner.identity import calibration_hash
from service.callers import Caller
from service.errors import Conflict, NotFound
from service.evidence import Evidence
from service.identifiers import new_id
from service.storage.repositories import Repositories
from service.storage.tables import Activation, CalibrationVersion
from service.texts import Line, control_in

MOST_SHOWN: Final = 20


class CalibrationOrder(Spec):
    """A calibration to answer with from now on."""

    calibration: Calibration
    reason: Line = Field(min_length=1, max_length=2000, description="why it replaces the one before")
    data: dict[str, str] = Field(
        default_factory=dict, max_length=200, description="SHA-256 of the measurement files behind it, by name"
    )
    activate: bool = Field(default=True, description="whether new answers are made with it")

    @field_validator("calibration")
    @classmethod
    def _named(cls, calibration: Calibration) -> Calibration:
        if control_in(calibration.version) is not None:
            raise BrokenRuleValue("version holds a control character")
        return calibration

    @field_validator("data")
    @classmethod
    def _hashes(cls, data: dict[str, str]) -> dict[str, str]:
        for name, value in data.items():
            if control_in(name) is not None:
                raise BrokenRuleValue("data: a name holds a control character")
            if not re.fullmatch(r"[0-9a-f]{64}", value):
                raise BrokenRuleValue(f"data.{name} is no SHA-256 in lower-case hexadecimal")
        return data


class ActivationOrder(Spec):
    """A version that answers from now on."""

    reason: Line = Field(min_length=1, max_length=2000, description="why it answers instead of the one before")
    hold: bool = Field(default=True, description="whether it stays when measurements come in, until another activation")


class ActivationEntry(Spec):
    """When a version was put in force."""

    author: str
    reason: str
    held: bool
    created_at: datetime


class CalibrationSummary(Spec):
    """A version without its factors."""

    id: str
    version: str
    content_sha256: str
    author: str
    reason: str
    data: dict[str, str]
    created_at: datetime
    installed: bool = Field(description="whether the service was started with it; else the project added it")
    current: bool = Field(description="whether new answers are made with it")
    learned: bool = Field(description="whether it was made from the project's own measurements")


class CalibrationDetail(CalibrationSummary):
    """A version with its factors, what stands behind them, and when it was put in force."""

    calibration: Calibration
    evidence: Evidence | None = Field(default=None, description="of one that was made from measurements")
    activations: tuple[ActivationEntry, ...] = Field(default=(), description="newest first, at most twenty")


def add(work: Repositories, caller: Caller, order: CalibrationOrder) -> str:
    """Keep a version. Where it is activated too, it stays in force until somebody activates another.

    Raises:
        SpecError: it lacks factors that this release needs, or states what no machine has.
    """
    needed = calibrations.current().factors
    missing = sorted(set(needed) - set(order.calibration.factors))
    if missing:
        raise BrokenRule(
            f"calibration.factors lacks {len(missing)} of {len(needed)} that this release needs, such as {missing[0]}"
        ).at("calibration", "factors")
    with within("calibration"):
        catalog.check_calibration(order.calibration)
    row = CalibrationVersion(
        id=new_id(),
        project_id=caller.project_id,
        version=order.calibration.version[:200],
        content_sha256=calibration_hash(order.calibration),
        author=caller.name,
        reason=order.reason,
        data={**order.calibration.data, **order.data},
        content=order.calibration.model_dump_json(),
    )
    work.calibrations.add(row)
    if order.activate:
        activate(work, caller.project_id, row.id, author=row.author, reason=row.reason, held=True)
    return row.id


def activate(
    work: Repositories, project_id: str, calibration_id: str | None, *, author: str, reason: str, held: bool
) -> None:
    """Answer with a version (None: whatever the installation brings) from now on."""
    work.calibrations.activate(
        Activation(
            id=new_id(),
            project_id=project_id,
            calibration_id=calibration_id,
            author=author,
            reason=reason,
            held=held,
        )
    )


def put_in_force(
    work: Repositories, caller: Caller, calibration_id: str, order: ActivationOrder, installed: str
) -> str:
    """Answer with a version of the project, or with what this process was started with (`installed`).

    Raises:
        NotFound: no such version.
        Conflict: an earlier release brought it.
    """
    row = work.calibrations.get(caller.project_id, calibration_id)
    if row is None:
        raise NotFound("no calibration of this id is known")
    if row.project_id is None and row.id != installed:
        raise Conflict(f"{row.version} came with another release; this one answers with {installed}")
    chosen = None if row.project_id is None else row.id
    activate(work, caller.project_id, chosen, author=caller.name, reason=order.reason, held=order.hold)
    return calibration_id


def summary(row: CalibrationVersion, current_id: str) -> CalibrationSummary:
    """A row as lists show it."""
    return CalibrationSummary(
        id=row.id,
        version=row.version,
        content_sha256=row.content_sha256,
        author=row.author,
        reason=row.reason,
        data=row.data,
        created_at=row.created_at,
        installed=row.project_id is None,
        current=row.id == current_id,
        learned=row.evidence is not None,
    )


def detail(work: Repositories, project_id: str, row: CalibrationVersion, current_id: str) -> CalibrationDetail:
    """A row with its factors."""
    when = work.calibrations.activations(project_id, None if row.project_id is None else row.id, MOST_SHOWN)
    entries = (
        ActivationEntry(author=one.author, reason=one.reason, held=one.held, created_at=one.created_at) for one in when
    )
    return CalibrationDetail(
        **dict(summary(row, current_id)),
        calibration=Calibration.model_validate_json(row.content),
        evidence=None if row.evidence is None else Evidence.model_validate(row.evidence),
        activations=tuple(entries),
    )
