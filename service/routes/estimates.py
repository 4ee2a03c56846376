"""Estimates: the price of exactly one configuration, answered in the same response and kept."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict

from planner.plan import Plan, Status
from service import problem_kinds as kinds
from service.answers import final
from service.callers import CurrentCaller
from service.dependencies import CurrentDatabase, CurrentPlanning, IfNoneMatch, RequestId
from service.errors import NotFound
from service.paging import CreatedWhen, PageCursor, Paged
from service.problems import Problem, documented, response
from service.reading import EstimateBody, StrictRoute
from service.routes.plans import PlanId
from service.storage.repositories import Repositories

router = APIRouter(prefix="/v1/estimates", tags=["estimates"], route_class=StrictRoute)
_BODY = (kinds.INVALID, kinds.UNREADABLE, kinds.NOT_INLINE, kinds.TOO_LARGE, kinds.MEDIA)
_WORK = (kinds.UNCALIBRATED, kinds.BUSY, kinds.QUOTA, kinds.SOLVE_FAILED, kinds.TIMED_OUT, kinds.UNAVAILABLE)


@router.post("", response_model=Plan, responses=documented(*_BODY, *_WORK))
async def create_estimate(
    request: EstimateBody, caller: CurrentCaller, planning: CurrentPlanning, request_id: RequestId
) -> Response:
    """Price the request's `configuration`. One that does not fit is an answer: status infeasible, with its memory.

    An equal request under the same calibration gets the estimate that is stored.
    """
    found = await planning.estimate(caller, request)
    if isinstance(found, Problem):
        return response(found, instance=request_id)
    return final(found, {"Location": f"/v1/estimates/{found.id}"})


class EstimateSummary(BaseModel):
    """An estimate in a list."""

    model_config = ConfigDict(frozen=True)

    id: str
    status: Status
    model: str
    calibration_id: str
    created_at: datetime
    step_seconds: float | None
    conservative_bytes: float | None
    world_size: int | None


class EstimatePage(Paged):
    """Estimates, newest first."""

    items: tuple[EstimateSummary, ...]


@router.get("", responses=documented(kinds.INVALID, kinds.UNAVAILABLE))
async def list_estimates(
    caller: CurrentCaller,
    database: CurrentDatabase,
    cursor: PageCursor,
    created: CreatedWhen,
    status: Status | None = None,
    model: Annotated[str | None, Query(max_length=200, description="name of the model")] = None,
) -> EstimatePage:
    """Estimates that were made, newest first."""

    def look(work: Repositories) -> tuple[tuple[EstimateSummary, ...], str | None]:
        page = work.plans.page(
            caller.project_id,
            "estimate",
            status=status,
            model=model,
            created=created,
            after=cursor.after,
            size=cursor.size,
        )
        names = EstimateSummary.model_fields
        items = tuple(EstimateSummary(**{name: getattr(row, name) for name in names}) for row in page.rows)
        return items, page.next_after

    items, after = await database.reading(look)
    return EstimatePage(items=items, next_page_token=cursor.next(after))


@router.get(
    "/{plan_id}",
    response_model=Plan,
    responses={
        304: {"description": "the copy at hand is the estimate"},
        **documented(kinds.NOT_FOUND, kinds.INVALID, kinds.UNAVAILABLE),
    },
)
async def get_estimate(
    plan_id: PlanId, caller: CurrentCaller, planning: CurrentPlanning, if_none_match: IfNoneMatch = None
) -> Response:
    """An estimate that was made."""
    view = await planning.look(caller, plan_id)
    if view.content is None:
        raise NotFound("no estimate of this id is known")
    return final(view.content, if_none_match=if_none_match)
