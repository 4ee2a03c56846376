"""Versions of the constants: who added which, why, and from what."""

import re
from datetime import datetime

from pydantic import Field, field_validator

from cost_models.calibration import Calibration
from cost_models.errors import BrokenRule
from cost_models.specs.base import Spec
from cost_models.specs.model import BrokenRuleValue
from planner import calibrations
from planner.identity import calibration_hash
from service.callers import Caller
from service.identifiers import new_id
from service.storage.repositories import Repositories
from service.storage.tables import CalibrationVersion


class CalibrationOrder(Spec):
    """A calibration to answer with from now on."""

    calibration: Calibration
    reason: str = Field(min_length=1, max_length=2000, description="why it replaces the one before")
    data: dict[str, str] = Field(
        default_factory=dict, max_length=200, description="SHA-256 of the measurement files behind it, by name"
    )
    author: str | None = Field(default=None, max_length=200, description="the caller when left out")

    @field_validator("data")
    @classmethod
    def _hashes(cls, data: dict[str, str]) -> dict[str, str]:
        for name, value in data.items():
            if not re.fullmatch(r"[0-9a-f]{64}", value):
                raise BrokenRuleValue(f"data.{name} is no SHA-256 in lower-case hexadecimal")
        return data


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


class CalibrationDetail(CalibrationSummary):
    """A version with its factors."""

    calibration: Calibration


def add(work: Repositories, caller: Caller, order: CalibrationOrder) -> str:
    """Keep a version; answers are made with it from now on.

    Raises:
        BrokenRule: it lacks factors that this release needs.
    """
    needed = calibrations.current().factors
    missing = sorted(set(needed) - set(order.calibration.factors))
    if missing:
        raise BrokenRule(
            f"calibration.factors lacks {len(missing)} of {len(needed)} that this release needs, such as {missing[0]}"
        )
    row = CalibrationVersion(
        id=new_id(),
        project_id=caller.project_id,
        version=order.calibration.version[:200],
        content_sha256=calibration_hash(order.calibration),
        author=order.author or caller.name,
        reason=order.reason,
        data={**order.calibration.data, **order.data},
        content=order.calibration.model_dump_json(),
    )
    work.calibrations.add(row)
    return row.id


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
    )


def detail(row: CalibrationVersion, current_id: str) -> CalibrationDetail:
    """A row with its factors."""
    calibration = Calibration.model_validate_json(row.content)
    return CalibrationDetail(**dict(summary(row, current_id)), calibration=calibration)
