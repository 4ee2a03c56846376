"""The notebook of a training job: which plan it followed when, why, and what came of each."""

from collections.abc import Sequence
from datetime import datetime

from pydantic import Field, PositiveInt

from cost_models.specs.base import Spec
from planner.plan import Status
from service import measuring
from service.callers import Caller
from service.errors import Conflict, NotFound
from service.identifiers import new_id
from service.measuring import Measurement
from service.orders import Name
from service.storage.repositories import Repositories
from service.storage.tables import Job, JobVersion, StoredPlan
from service.texts import Line


class VersionOrder(Spec):
    """A plan that a job follows from now on."""

    plan_id: str = Field(max_length=64)
    reason: Line = Field(default="", max_length=2000)


class JobOrder(VersionOrder):
    """A job with its first plan."""

    name: Name


class RollBackOrder(Spec):
    """A way back."""

    to: PositiveInt | None = Field(default=None, description="number of a version; the one before the last if left out")
    reason: Line = Field(default="", max_length=2000)


class Version(Spec):
    """One entry: a plan with its prediction, and what runs of it measured."""

    number: int
    plan_id: str
    author: str
    reason: str
    restores: int | None = Field(description="the version that this roll-back went back to")
    created_at: datetime
    status: Status
    step_seconds: float | None
    conservative_bytes: float | None
    world_size: int | None
    measured: tuple[Measurement, ...] = ()


class JobSummary(Spec):
    """A job in a list."""

    name: str
    created_at: datetime
    version: int
    plan_id: str


class JobDetail(JobSummary):
    """A job with its history, oldest first."""

    versions: tuple[Version, ...]


def begin(work: Repositories, caller: Caller, order: JobOrder) -> str:
    """Begin a job with its first plan; its name.

    Raises:
        Conflict: there is a job of this name.
        NotFound: no such plan is made.
    """
    if work.history.job(caller.project_id, order.name) is not None:
        raise Conflict(f"there is a job {order.name} already; add a version to it")
    job = Job(id=new_id(), project_id=caller.project_id, name=order.name)
    work.history.add_job(job)
    _follow(work, caller, job, order, number=1)
    return order.name


def supersede(work: Repositories, caller: Caller, name: str, order: VersionOrder) -> str:
    """Let a job follow another plan; its name.

    Raises:
        NotFound: no such job, or no such plan is made.
    """
    job, versions = _history(work, caller, name)
    _follow(work, caller, job, order, number=versions[-1].number + 1)
    return name


def roll_back(work: Repositories, caller: Caller, name: str, order: RollBackOrder) -> str:
    """Let a job follow the plan of an earlier version again, as a new version: nothing of the history is lost.

    Raises:
        NotFound: no such job.
        Conflict: there is no such version to go back to.
    """
    job, versions = _history(work, caller, name)
    last = versions[-1]
    to = order.to if order.to is not None else last.number - 1
    target = next((version for version in versions if version.number == to), None)
    if target is None or to == last.number:
        raise Conflict(
            f"job {name} has versions 1 to {last.number}, of which the last is in force; {to} is no way back"
        )
    back = VersionOrder(plan_id=target.plan_id, reason=order.reason)
    _follow(work, caller, job, back, number=last.number + 1, restores=to)
    return name


def told(work: Repositories, caller: Caller, name: str) -> JobDetail:
    """A job with its history.

    Raises:
        NotFound: no such job.
    """
    job, versions = _history(work, caller, name)
    ids = sorted({version.plan_id for version in versions})
    plans = {plan.id: plan for plan in work.plans.of(caller.project_id, ids)}
    found: dict[str, tuple[Measurement, ...]] = {}
    for row in work.measurements.of(caller.project_id, ids):
        found[row.plan_id] = (*found.get(row.plan_id, ()), measuring.measured(row, plans[row.plan_id]))
    entries = tuple(_entry(v, plans[v.plan_id], found.get(v.plan_id, ())) for v in versions)
    last = versions[-1]
    return JobDetail(
        name=job.name, created_at=job.created_at, version=last.number, plan_id=last.plan_id, versions=entries
    )


def _history(work: Repositories, caller: Caller, name: str) -> tuple[Job, Sequence[JobVersion]]:
    """A job with all its versions, oldest first; there is one at least."""
    job = work.history.job(caller.project_id, name)
    if job is None:
        raise NotFound(f"no job is called {name!r}")
    return job, work.history.versions(job)


def _follow(
    work: Repositories, caller: Caller, job: Job, order: VersionOrder, *, number: int, restores: int | None = None
) -> None:
    plan = work.plans.get(caller.project_id, order.plan_id)
    if plan is None:
        raise NotFound("no finished plan of this id is known")
    if plan.status == "infeasible":
        raise Conflict("the plan is infeasible: there is no configuration to follow")
    work.history.add_version(
        JobVersion(
            job_id=job.id,
            number=number,
            project_id=caller.project_id,
            plan_id=plan.id,
            author=caller.name,
            reason=order.reason,
            restores=restores,
        )
    )


def _entry(version: JobVersion, plan: StoredPlan, measured: tuple[Measurement, ...]) -> Version:
    own = ("number", "plan_id", "author", "reason", "restores", "created_at")
    figures = ("status", "step_seconds", "conservative_bytes", "world_size")
    return Version(
        **{name: getattr(version, name) for name in own},
        **{name: getattr(plan, name) for name in figures},
        measured=measured,
    )
