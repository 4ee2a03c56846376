"""History: tags, differences, and the plans that each job has had."""

from collections.abc import Callable
from typing import Annotated, TypeVar

from fastapi import APIRouter, Body, Path, Response
from pydantic import BaseModel, ConfigDict

from planner.plan import Plan
from service import measuring, notebook
from service import problem_kinds as kinds
from service.callers import Caller, CurrentCaller
from service.dependencies import CurrentDatabase, IdempotencyKey
from service.diffing import PlanDiff, diff
from service.errors import NotFound
from service.idempotency import once
from service.measuring import Measurement
from service.notebook import JobDetail, JobOrder, JobSummary, RollBackOrder, VersionOrder
from service.orders import NAME_PATTERN
from service.paging import CreatedWhen, PageCursor, Paged, Text
from service.problems import documented
from service.reading import StrictRoute
from service.routes.plans import PlanId
from service.storage.database import Database
from service.storage.repositories import Repositories

router = APIRouter(prefix="/v1", tags=["history"], route_class=StrictRoute)
JobName = Annotated[str, Path(max_length=200)]
TagName = Annotated[str, Path(max_length=200, pattern=NAME_PATTERN)]
Order = TypeVar("Order", VersionOrder, RollBackOrder)
_BODY = (kinds.INVALID, kinds.UNREADABLE, kinds.TOO_LARGE, kinds.MEDIA, kinds.KEY_REUSED)
_VERSION = {"plan_id": "019a2c5e-0000-7000-8000-000000000001", "reason": "less memory"}
_BACK = {"to": 1, "reason": "slower than the first"}
_JOB = {"name": "pretrain-7b", "plan_id": "019a2c5e-0000-7000-8000-000000000000", "reason": "first plan"}


class Tags(BaseModel):
    """The words on a plan."""

    model_config = ConfigDict(frozen=True)

    plan_id: str
    tags: tuple[str, ...]


class JobPage(Paged):
    """Jobs, newest first."""

    items: tuple[JobSummary, ...]


@router.get("/plans/{plan_id}/diff/{other_id}", responses=documented(kinds.NOT_FOUND, kinds.INVALID, kinds.UNAVAILABLE))
async def diff_plans(
    plan_id: PlanId,
    other_id: Annotated[str, Path(max_length=64, description="the plan on the right")],
    caller: CurrentCaller,
    database: CurrentDatabase,
) -> PlanDiff:
    """Where two plans differ: request, configuration, prediction, provenance; and what runs of each measured."""

    def look(work: Repositories) -> PlanDiff:
        left, left_measured = _whole(work, caller, plan_id)
        right, right_measured = _whole(work, caller, other_id)
        return diff(left, right, left_measured, right_measured)

    return await database.reading(look)


@router.put("/plans/{plan_id}/tags/{tag}", responses=documented(kinds.NOT_FOUND, kinds.INVALID, kinds.UNAVAILABLE))
async def tag_plan(plan_id: PlanId, tag: TagName, caller: CurrentCaller, database: CurrentDatabase) -> Tags:
    """Put a word on a plan. Tagged plans are never pruned."""

    def put(work: Repositories) -> Tags:
        _made(work, caller, plan_id)
        work.history.tag(caller.project_id, plan_id, tag)
        return _tags(work, caller, plan_id)

    return await database.writing(put)


@router.delete("/plans/{plan_id}/tags/{tag}", responses=documented(kinds.NOT_FOUND, kinds.INVALID, kinds.UNAVAILABLE))
async def untag_plan(plan_id: PlanId, tag: TagName, caller: CurrentCaller, database: CurrentDatabase) -> Tags:
    """Take a word off a plan."""

    def take(work: Repositories) -> Tags:
        _made(work, caller, plan_id)
        work.history.untag(caller.project_id, plan_id, tag)
        return _tags(work, caller, plan_id)

    return await database.writing(take)


@router.get("/jobs", responses=documented(kinds.INVALID, kinds.UNAVAILABLE))
async def list_jobs(
    caller: CurrentCaller, database: CurrentDatabase, cursor: PageCursor, created: CreatedWhen, text: Text = ""
) -> JobPage:
    """Jobs with the plan that each follows."""

    def look(work: Repositories) -> tuple[tuple[JobSummary, ...], str | None]:
        page = work.history.jobs(caller.project_id, text=text, created=created, after=cursor.after, size=cursor.size)
        current = work.history.current([job.id for job in page.rows])
        items = tuple(
            JobSummary(name=job.name, created_at=job.created_at, version=last.number, plan_id=last.plan_id)
            for job in page.rows
            for last in (current[job.id],)
        )
        return items, page.next_after

    items, after = await database.reading(look)
    return JobPage(items=items, next_page_token=cursor.next(after))


@router.post("/jobs", status_code=201, responses=documented(*_BODY, kinds.NOT_FOUND, kinds.CONFLICT, kinds.UNAVAILABLE))
async def create_job(
    order: Annotated[JobOrder, Body(openapi_examples={"a job": {"value": _JOB}})],
    caller: CurrentCaller,
    database: CurrentDatabase,
    response: Response,
    key: IdempotencyKey = None,
) -> JobDetail:
    """Begin a job with its first plan."""

    def begin(work: Repositories) -> JobDetail:
        name, _ = once(work, caller, key, "job", order, lambda: notebook.begin(work, caller, order))
        return notebook.told(work, caller, name)

    found = await database.writing(begin)
    response.headers["Location"] = f"/v1/jobs/{found.name}"
    return found


@router.get("/jobs/{name}", responses=documented(kinds.NOT_FOUND, kinds.INVALID, kinds.UNAVAILABLE))
async def get_job(name: JobName, caller: CurrentCaller, database: CurrentDatabase) -> JobDetail:
    """A job's plans, oldest first, each with its prediction and what runs of it measured."""
    return await database.reading(lambda work: notebook.told(work, caller, name))


@router.post(
    "/jobs/{name}/versions",
    status_code=201,
    responses=documented(*_BODY, kinds.NOT_FOUND, kinds.CONFLICT, kinds.UNAVAILABLE),
)
async def supersede_plan(
    name: JobName,
    order: Annotated[VersionOrder, Body(openapi_examples={"another plan": {"value": _VERSION}})],
    caller: CurrentCaller,
    database: CurrentDatabase,
    key: IdempotencyKey = None,
) -> JobDetail:
    """Let a job follow another plan from now on."""
    return await _noted(database, caller, name, key, order, "version", notebook.supersede)


@router.post(
    "/jobs/{name}/rollback",
    status_code=201,
    responses=documented(*_BODY, kinds.NOT_FOUND, kinds.CONFLICT, kinds.UNAVAILABLE),
)
async def roll_back_plan(
    name: JobName,
    order: Annotated[RollBackOrder, Body(openapi_examples={"to the first": {"value": _BACK}})],
    caller: CurrentCaller,
    database: CurrentDatabase,
    key: IdempotencyKey = None,
) -> JobDetail:
    """Let a job follow an earlier version's plan again, as a new version: history only grows."""
    return await _noted(database, caller, name, key, order, "roll-back", notebook.roll_back)


async def _noted(
    database: Database,
    caller: Caller,
    name: str,
    key: str | None,
    order: Order,
    what: str,
    note: Callable[[Repositories, Caller, str, Order], str],
) -> JobDetail:
    """Write a job's next version, once per key; the job as it is then."""

    def write(work: Repositories) -> JobDetail:
        once(work, caller, key, f"{what} of {name}", order, lambda: note(work, caller, name, order))
        return notebook.told(work, caller, name)

    return await database.writing(write)


def _whole(work: Repositories, caller: Caller, plan_id: str) -> tuple[Plan, tuple[Measurement, ...]]:
    """A plan with what its runs measured."""
    content = work.plans.content(caller.project_id, plan_id)
    if content is None:
        raise NotFound(f"no finished plan {plan_id!r} is known")
    rows = list(work.measurements.of(caller.project_id, [plan_id]))
    return Plan.model_validate_json(content.text), measuring.with_predictions(work, caller, rows)


def _made(work: Repositories, caller: Caller, plan_id: str) -> None:
    if work.plans.content(caller.project_id, plan_id) is None:
        raise NotFound("no finished plan of this id is known")


def _tags(work: Repositories, caller: Caller, plan_id: str) -> Tags:
    return Tags(plan_id=plan_id, tags=work.history.tags(caller.project_id, [plan_id]).get(plan_id, ()))
