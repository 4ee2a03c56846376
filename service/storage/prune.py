"""Forgetting, by policy and on command only: what nobody tagged, followed or measured."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import CursorResult, Delete, delete, exists, or_, select

from service.storage.repositories import Repositories
from service.storage.tables import (
    AuditEntry,
    Delivery,
    IdempotencyKey,
    JobVersion,
    Solve,
    StoredMeasurement,
    StoredPlan,
    Tag,
)


@dataclass(frozen=True, slots=True)
class Pruned:
    """Rows forgotten."""

    plans: int
    requests: int
    idempotency_keys: int
    deliveries: int
    audit_entries: int


def prune(before: datetime, work: Repositories) -> Pruned:
    """Forget what ended before an instant. Measured, tagged and followed plans stay, and so do calibrations."""
    session = work.session
    forgotten = (
        StoredPlan.created_at < before,
        ~exists(select(StoredMeasurement.id).where(StoredMeasurement.plan_id == StoredPlan.id)),
        ~exists(select(Tag.name).where(Tag.plan_id == StoredPlan.id)),
        ~exists(select(JobVersion.number).where(JobVersion.plan_id == StoredPlan.id)),
    )

    def gone(statement: Delete) -> int:
        done: Any = session.execute(statement.execution_options(synchronize_session=False))
        assert isinstance(done, CursorResult)
        return done.rowcount

    # A key that is younger than the plan it made would stand for nothing: its request may be asked again.
    made = exists(select(StoredPlan.id).where(StoredPlan.id == IdempotencyKey.made, *forgotten))
    keys = gone(delete(IdempotencyKey).where(or_(IdempotencyKey.created_at < before, made)))
    plans = gone(delete(StoredPlan).where(*forgotten))
    left = exists(select(StoredPlan.id).where(StoredPlan.id == Solve.id))
    ended = Solve.state.not_in(("queued", "running"))
    requests = gone(delete(Solve).where(ended, Solve.ended_at < before, ~left))
    deliveries = gone(delete(Delivery).where(Delivery.state.in_(("delivered", "failed")), Delivery.created_at < before))
    audited = gone(delete(AuditEntry).where(AuditEntry.created_at < before))
    return Pruned(plans, requests, keys, deliveries, audited)
