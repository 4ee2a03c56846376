"""Plans: asked for, waited for, watched, listed, cancelled."""

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Response
from fastapi.sse import EventSourceResponse
from pydantic import BaseModel, ConfigDict

from planner.plan import Plan, Status
from service import problem_kinds as kinds
from service.answers import PendingPlan, pending
from service.asking import CurrentAsker, Events, watched
from service.callers import Caller, CurrentCaller
from service.dependencies import CurrentDatabase, CurrentPlanning, IdempotencyKey, IfNoneMatch
from service.paging import CreatedWhen, Cursor, PageCursor, Paged
from service.problems import documented
from service.reading import PlanBody, StrictRoute
from service.storage.database import Database
from service.storage.repositories import Repositories
from service.storage.repositories.plans import PLANS
from service.storage.repositories.solves import Filters
from service.storage.tables import Solve, StoredPlan

router = APIRouter(prefix="/v1/plans", tags=["plans"], route_class=StrictRoute)
PlanId = Annotated[str, Path(description="as in the plan's `envelope.id`", max_length=64)]
State = Literal["queued", "running", "cancelling", "done", "failed", "cancelled"]
"""cancelling: somebody has asked it to stop, and it has not yet."""
BODY = (kinds.INVALID, kinds.UNREADABLE, kinds.NOT_INLINE, kinds.TOO_LARGE, kinds.MEDIA)
ENDS = (kinds.UNCALIBRATED, kinds.SOLVE_FAILED, kinds.TIMED_OUT, kinds.CANCELLED)
ACCEPTED: dict[int | str, Any] = {202: {"model": PendingPlan, "description": "being made; look at `Location`"}}
WATCHED = documented(kinds.NOT_FOUND, kinds.INVALID, kinds.QUOTA, kinds.UNAVAILABLE)
MATCHED: dict[int | str, Any] = {304: {"description": "the copy at hand is the plan"}}


class PlanSummary(BaseModel):
    """A plan in a list."""

    model_config = ConfigDict(frozen=True)

    id: str
    state: State
    status: Status | None = None
    model: str
    gpus: int
    objective: str
    calibration_id: str
    created_at: datetime
    ended_at: datetime | None = None
    step_seconds: float | None = None
    conservative_bytes: float | None = None
    world_size: int | None = None
    tags: tuple[str, ...] = ()


class PlanPage(Paged):
    """Plans, newest first."""

    items: tuple[PlanSummary, ...]


@router.post(
    "",
    response_model=Plan,
    responses={
        200: {"description": "the plan; `status` infeasible is an answer, with its reasons"},
        202: {"model": PendingPlan, "description": "accepted; the plan will be at `Location`"},
        **documented(*BODY, *ENDS, kinds.BUSY, kinds.QUOTA, kinds.UNAVAILABLE, kinds.KEY_REUSED),
    },
)
async def create_plan(request: PlanBody, asker: CurrentAsker, key: IdempotencyKey = None) -> Response:
    """Ask for the best configuration. Without `Prefer: wait=N` the answer is 202, unless the plan is stored already.

    An equal request under the same calibration gets the plan that is stored, or joins the one that is being made.
    """
    return await asker.ask("plan", request, key)


async def _filters(
    state: State | None = None,
    status: Status | None = None,
    model: Annotated[str | None, Query(max_length=200, description="name of the model")] = None,
    tag: Annotated[str | None, Query(max_length=200)] = None,
    *,
    created: CreatedWhen,
) -> Filters:
    return Filters(
        state=state,
        status=status,
        model=model,
        tag=tag,
        created=created,
    )


PlanFilters = Annotated[Filters, Depends(_filters)]


@router.get("", responses=documented(kinds.INVALID, kinds.UNAVAILABLE))
async def list_plans(
    caller: CurrentCaller,
    database: CurrentDatabase,
    cursor: PageCursor,
    filters: PlanFilters,
) -> PlanPage:
    """Plans and those that are being made, newest first."""
    return await page_of(caller, database, cursor, filters)


@router.get(
    "/{plan_id}",
    response_model=Plan,
    responses={
        202: {"model": PendingPlan, "description": "still being made"},
        **MATCHED,
        **documented(kinds.NOT_FOUND, kinds.INVALID, *ENDS, kinds.UNAVAILABLE),
    },
)
async def get_plan(plan_id: PlanId, asker: CurrentAsker, if_none_match: IfNoneMatch = None) -> Response:
    """A plan, or how far it is, or why there is none. `Prefer: wait=N` waits for its end."""
    return await asker.look(PLANS, plan_id, if_none_match)


@router.delete(
    "/{plan_id}",
    responses=documented(kinds.NOT_FOUND, kinds.INVALID, kinds.CONFLICT, kinds.UNAVAILABLE),
)
async def cancel_plan(plan_id: PlanId, caller: CurrentCaller, planning: CurrentPlanning) -> PendingPlan:
    """Stop a plan that is being made. One that is made is kept; a running solve may take a moment to end."""
    return pending(await planning.cancel(caller, plan_id))


@router.get("/{plan_id}/events", response_class=EventSourceResponse, responses=WATCHED)
async def watch_plan(found: Annotated[Events, Depends(watched(PLANS, "plan_id"))]) -> Events:
    """Server-sent events: `progress` with the best value found, the bound and the gap; at last `ended`."""
    async for event in found:
        yield event


async def page_of(caller: Caller, database: Database, cursor: Cursor, filters: Filters) -> PlanPage:
    """Requests of one verb with what is known of their answers."""

    def look(work: Repositories) -> tuple[tuple[PlanSummary, ...], str | None]:
        page = work.solves.page(caller.project_id, filters, after=cursor.after, size=cursor.size)
        ids = [row.id for row in page.rows]
        plans = {row.id: row for row in work.plans.of(caller.project_id, ids)}
        tags = work.history.tags(caller.project_id, ids)
        return tuple(_summary(row, plans.get(row.id), tags.get(row.id, ())) for row in page.rows), page.next_after

    items, after = await database.reading(look)
    return PlanPage(items=items, next_page_token=cursor.next(after))


def _summary(solve: Solve, plan: StoredPlan | None, tags: tuple[str, ...]) -> PlanSummary:
    figures = {} if plan is None else {name: getattr(plan, name) for name in _FIGURES}
    asked = {name: getattr(solve, name) for name in _ASKED}
    return PlanSummary(**asked, **figures, state=solve.shown, tags=tags)


_ASKED = ("id", "model", "gpus", "objective", "calibration_id", "created_at", "ended_at")
_FIGURES = ("status", "step_seconds", "conservative_bytes", "world_size")
