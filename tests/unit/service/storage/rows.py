"""Rows as tests need them."""

from typing import Any

from service.identifiers import new_id
from service.storage.repositories import Repositories
from service.storage.tables import (
    DEFAULT_PROJECT,
    Activation,
    CalibrationVersion,
    Project,
    Solve,
    StoredMeasurement,
    StoredPlan,
)

OTHER_PROJECT = "other"


def other_project(work: Repositories) -> None:
    work.session.add(Project(id=OTHER_PROJECT, name=OTHER_PROJECT))
    work.session.flush()


def calibration(**changes: Any) -> CalibrationVersion:
    values: dict[str, Any] = {
        "id": new_id(),
        "project_id": DEFAULT_PROJECT,
        "version": "site-1",
        "content_sha256": "a" * 64,
        "author": "ada",
        "reason": "new interconnect",
        "data": {"runs.csv": "b" * 64},
        "content": "{}",
    }
    return CalibrationVersion(**values | changes)


def activation(version: CalibrationVersion) -> Activation:
    return Activation(
        id=new_id(),
        project_id=version.project_id or DEFAULT_PROJECT,
        calibration_id=version.id,
        author="ada",
        reason="as it was made",
    )


def solve(calibration_id: str, **changes: Any) -> Solve:
    values: dict[str, Any] = {
        "id": new_id(),
        "project_id": DEFAULT_PROJECT,
        "verb": "plan",
        "request": "{}",
        "options": {},
        "content_key": new_id(),
        "calibration_id": calibration_id,
        "model": "gpt2",
        "gpus": 8,
        "objective": "throughput",
    }
    return Solve(**values | changes)


def plan(calibration_id: str, **changes: Any) -> StoredPlan:
    values: dict[str, Any] = {
        "id": new_id(),
        "project_id": DEFAULT_PROJECT,
        "kind": "plan",
        "content_key": new_id(),
        "calibration_id": calibration_id,
        "status": "optimal",
        "model": "gpt2",
        "request_hash": "c" * 64,
        "content": "{}",
        "etag": "d" * 64,
        "step_seconds": 1.0,
        "conservative_bytes": 2.0**33,
        "world_size": 8,
    }
    return StoredPlan(**values | changes)


def measurement(plan_id: str, **changes: Any) -> StoredMeasurement:
    values: dict[str, Any] = {
        "id": new_id(),
        "project_id": DEFAULT_PROJECT,
        "plan_id": plan_id,
        "author": "ada",
        "outcome": "ok",
        "content": {"step_seconds": 1.1},
    }
    return StoredMeasurement(**values | changes)
