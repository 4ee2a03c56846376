"""The tables. Every row belongs to a project; ids are UUIDs that sort by time.

`plans`, `calibrations`, `activations`, `measurements` and `job_versions` are never updated: triggers refuse it
(`guards`).
"""

from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import ForeignKey, Index, MetaData, String, Text, UniqueConstraint, text
from sqlalchemy.orm import DeclarativeBase, Mapped, MappedAsDataclass, mapped_column

from service.storage.dialects import Instant, Json

DEFAULT_PROJECT: Final = "default"
NAMING: Final = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}
LIVE_STATES: Final = ("queued", "running")
LIVE: Final = f"state IN {LIVE_STATES}"
_Id: Final = String(36)
_Hash: Final = String(64)
_Name: Final = String(200)


def now() -> datetime:
    """This instant."""
    return datetime.now(UTC)


class Base(MappedAsDataclass, DeclarativeBase, kw_only=True):
    """Tables with typed constructors."""

    metadata = MetaData(naming_convention=NAMING)


class Project(Base):
    """A tenant: nothing of one is seen by another."""

    __tablename__ = "projects"

    id: Mapped[str] = mapped_column(_Id, primary_key=True)
    name: Mapped[str] = mapped_column(_Name, unique=True)
    created_at: Mapped[datetime] = mapped_column(Instant, default_factory=now)


class CalibrationVersion(Base):
    """One version of the constants. Without a project: what this installation was started with."""

    __tablename__ = "calibrations"
    __table_args__ = (Index(None, "project_id", "id"),)

    id: Mapped[str] = mapped_column(_Id, primary_key=True)
    project_id: Mapped[str | None] = mapped_column(ForeignKey("projects.id"))
    version: Mapped[str] = mapped_column(_Name)
    content_sha256: Mapped[str] = mapped_column(_Hash)
    author: Mapped[str] = mapped_column(_Name)
    reason: Mapped[str] = mapped_column(Text)
    data: Mapped[dict[str, str]] = mapped_column(Json)
    """SHA-256 of the files behind it, by name."""
    content: Mapped[str] = mapped_column(Text)
    evidence: Mapped[dict[str, Any] | None] = mapped_column(Json, default=None)
    """What its measurements did; None: it was not made from any of ours."""
    created_at: Mapped[datetime] = mapped_column(Instant, default_factory=now)


class Activation(Base):
    """Which version answers from then on; the last one is in force."""

    __tablename__ = "activations"
    __table_args__ = (Index(None, "project_id", "id"),)

    id: Mapped[str] = mapped_column(_Id, primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    calibration_id: Mapped[str | None] = mapped_column(ForeignKey("calibrations.id"))
    """None: whatever the installation brings."""
    author: Mapped[str] = mapped_column(_Name)
    reason: Mapped[str] = mapped_column(Text)
    held: Mapped[bool] = mapped_column(default=False)
    """Whether it stays when measurements come in."""
    created_at: Mapped[datetime] = mapped_column(Instant, default_factory=now)


class Solve(Base):
    """An accepted request on its way to a plan, which will have the same id."""

    __tablename__ = "solves"
    __table_args__ = (
        # An equal request joins the one that is under way.
        Index(
            "uq_solves_live_content",
            "project_id",
            "content_key",
            unique=True,
            sqlite_where=text(LIVE),
            postgresql_where=text(LIVE),
        ),
        Index("ix_solves_live", "state", "id", sqlite_where=text(LIVE), postgresql_where=text(LIVE)),
        Index(None, "project_id", "id"),
        Index(None, "project_id", "started_at"),  # when a project had its last turn
    )

    id: Mapped[str] = mapped_column(_Id, primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    verb: Mapped[str] = mapped_column(String(16))
    request: Mapped[str] = mapped_column(Text)
    options: Mapped[dict[str, Any]] = mapped_column(Json)
    content_key: Mapped[str] = mapped_column(_Hash)
    calibration_id: Mapped[str] = mapped_column(ForeignKey("calibrations.id"))
    model: Mapped[str] = mapped_column(_Name)
    gpus: Mapped[int]
    objective: Mapped[str] = mapped_column(_Name)
    created_by: Mapped[str | None] = mapped_column(_Name, default=None)
    created_at: Mapped[datetime] = mapped_column(Instant, default_factory=now)
    state: Mapped[str] = mapped_column(String(16), default="queued")
    started_at: Mapped[datetime | None] = mapped_column(Instant, default=None)
    ended_at: Mapped[datetime | None] = mapped_column(Instant, default=None)
    attempts: Mapped[int] = mapped_column(default=0)
    deaths: Mapped[int] = mapped_column(default=0)
    """Times that the process working on it ended in the middle."""
    fence: Mapped[int] = mapped_column(default=0)
    """Grows with every claim: a result that comes with an older number is late and refused."""
    lease_owner: Mapped[str | None] = mapped_column(_Name, default=None)
    lease_until: Mapped[float | None] = mapped_column(default=None)
    """[seconds since 1970], by the database's clock."""
    cancel_requested: Mapped[bool] = mapped_column(default=False)
    progress: Mapped[dict[str, Any] | None] = mapped_column(Json, default=None)
    problem: Mapped[dict[str, Any] | None] = mapped_column(Json, default=None)
    expected_seconds: Mapped[float | None] = mapped_column(default=None)
    """What alike ones took when it was accepted; None: there were none."""
    traceparent: Mapped[str | None] = mapped_column(_Name, default=None)
    """The span that accepted it (W3C Trace Context), where spans are recorded."""
    request_id: Mapped[str | None] = mapped_column(_Name, default=None)
    """Of the request that accepted it, as in its log lines."""

    @property
    def shown(self) -> str:
        """Its state as callers see it: one that is asked to stop is `cancelling` until it has."""
        return "cancelling" if self.cancel_requested and self.state in LIVE_STATES else self.state


class StoredPlan(Base):
    """An answer, to the byte as it is served. Of an estimate too."""

    __tablename__ = "plans"
    __table_args__ = (UniqueConstraint("project_id", "content_key"), Index(None, "project_id", "kind", "id"))

    id: Mapped[str] = mapped_column(_Id, primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    kind: Mapped[str] = mapped_column(String(16))
    content_key: Mapped[str] = mapped_column(_Hash)
    calibration_id: Mapped[str] = mapped_column(ForeignKey("calibrations.id"))
    status: Mapped[str] = mapped_column(String(16))
    model: Mapped[str] = mapped_column(_Name)
    request_hash: Mapped[str] = mapped_column(_Hash)
    content: Mapped[str] = mapped_column(Text)
    etag: Mapped[str] = mapped_column(_Hash)
    step_seconds: Mapped[float | None]
    conservative_bytes: Mapped[float | None]
    world_size: Mapped[int | None]
    created_at: Mapped[datetime] = mapped_column(Instant, default_factory=now)


class StoredMeasurement(Base):
    """What one run of a plan measured."""

    __tablename__ = "measurements"
    __table_args__ = (Index(None, "project_id", "id"), Index(None, "plan_id", "id"))

    id: Mapped[str] = mapped_column(_Id, primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    plan_id: Mapped[str] = mapped_column(ForeignKey("plans.id"))
    author: Mapped[str] = mapped_column(_Name)
    outcome: Mapped[str] = mapped_column(String(16))
    content: Mapped[dict[str, Any]] = mapped_column(Json)
    created_at: Mapped[datetime] = mapped_column(Instant, default_factory=now)


class Registration(Base):
    """A model, a cluster or a device under a name of the project's own."""

    __tablename__ = "registrations"

    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"), primary_key=True)
    kind: Mapped[str] = mapped_column(String(16), primary_key=True)
    name: Mapped[str] = mapped_column(_Name, primary_key=True)
    content: Mapped[dict[str, Any]] = mapped_column(Json)
    created_at: Mapped[datetime] = mapped_column(Instant, default_factory=now)


class Tag(Base):
    """A word on a plan."""

    __tablename__ = "tags"

    plan_id: Mapped[str] = mapped_column(ForeignKey("plans.id"), primary_key=True)
    name: Mapped[str] = mapped_column(_Name, primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    created_at: Mapped[datetime] = mapped_column(Instant, default_factory=now)


class Job(Base):
    """A training job, which has had one plan after another."""

    __tablename__ = "jobs"
    __table_args__ = (UniqueConstraint("project_id", "name"),)

    id: Mapped[str] = mapped_column(_Id, primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    name: Mapped[str] = mapped_column(_Name)
    created_at: Mapped[datetime] = mapped_column(Instant, default_factory=now)


class JobVersion(Base):
    """Which plan a job followed from then on; the last one is in force."""

    __tablename__ = "job_versions"
    __table_args__ = (Index(None, "plan_id"),)

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    plan_id: Mapped[str] = mapped_column(ForeignKey("plans.id"))
    author: Mapped[str] = mapped_column(_Name)
    reason: Mapped[str] = mapped_column(Text)
    restores: Mapped[int | None] = mapped_column(default=None)
    """The version that a roll-back went back to."""
    created_at: Mapped[datetime] = mapped_column(Instant, default_factory=now)


class IdempotencyKey(Base):
    """What a request with an `Idempotency-Key` made, so that its repetition makes nothing."""

    __tablename__ = "idempotency_keys"

    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"), primary_key=True)
    key: Mapped[str] = mapped_column(String(255), primary_key=True)
    request_sha256: Mapped[str] = mapped_column(_Hash)
    made: Mapped[str] = mapped_column(_Name)
    """Id of what was made."""
    created_at: Mapped[datetime] = mapped_column(Instant, default_factory=now, index=True)


class ApiKey(Base):
    """What a caller of a project shows. The secret itself is not kept."""

    __tablename__ = "api_keys"
    __table_args__ = (Index(None, "project_id", "id"),)

    id: Mapped[str] = mapped_column(_Id, primary_key=True)
    """The public part of the key's text."""
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    name: Mapped[str] = mapped_column(_Name)
    sha256: Mapped[str] = mapped_column(_Hash)
    scopes: Mapped[list[str]] = mapped_column(Json)
    requests_per_minute: Mapped[int | None] = mapped_column(default=None)
    """None: what the installation allows."""
    created_at: Mapped[datetime] = mapped_column(Instant, default_factory=now)
    expires_at: Mapped[datetime | None] = mapped_column(Instant, default=None)
    revoked_at: Mapped[datetime | None] = mapped_column(Instant, default=None)
    replaces: Mapped[str | None] = mapped_column(_Id, default=None)
    """The key that a rotation made this one of."""


class AuditEntry(Base):
    """Who changed something, or tried to, and what came of it."""

    __tablename__ = "audit"
    __table_args__ = (Index(None, "project_id", "id"), Index(None, "created_at"))

    id: Mapped[str] = mapped_column(_Id, primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    caller: Mapped[str] = mapped_column(_Name)
    key_id: Mapped[str | None] = mapped_column(_Name)
    """Of the API key, or the subject of the bearer token."""
    action: Mapped[str] = mapped_column(_Name)
    """Operation id, or the command."""
    target: Mapped[str] = mapped_column(Text)
    """Path of the request, or what the command was about."""
    status: Mapped[int]
    """Of the answer; 0: none was given."""
    request_id: Mapped[str | None] = mapped_column(_Name, default=None)
    address: Mapped[str | None] = mapped_column(_Name, default=None)
    """Of the machine that asked, as far as the server knows it."""
    times: Mapped[int] = mapped_column(default=1, server_default="1")
    """Refusals that the entry stands for."""
    created_at: Mapped[datetime] = mapped_column(Instant, default_factory=now)


class Delivery(Base):
    """A message to a webhook, until it is taken or given up."""

    __tablename__ = "deliveries"
    __table_args__ = (Index(None, "state", "next_at"), Index(None, "solve_id"))

    id: Mapped[str] = mapped_column(_Id, primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    solve_id: Mapped[str] = mapped_column(_Id)
    url: Mapped[str] = mapped_column(Text)
    state: Mapped[str] = mapped_column(String(16), default="waiting")
    """waiting for the solve, pending, delivered or failed."""
    attempts: Mapped[int] = mapped_column(default=0)
    next_at: Mapped[float] = mapped_column(default=0.0)
    """When it is tried (again). [seconds since 1970]"""
    last_error: Mapped[str | None] = mapped_column(Text, default=None)
    created_at: Mapped[datetime] = mapped_column(Instant, default_factory=now)
