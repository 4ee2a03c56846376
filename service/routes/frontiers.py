"""Frontiers and ladders: many proven answers to one question, made like plans and kept like them."""

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Body, Depends, Path, Response
from fastapi.sse import EventSourceResponse

from planner.frontier import Frontier, Ladder
from service import problem_kinds as kinds
from service.answers import PendingPlan, pending
from service.asking import CurrentAsker, Events, watched
from service.callers import CurrentCaller
from service.dependencies import CurrentDatabase, CurrentPlanning, IdempotencyKey, IfNoneMatch
from service.orders import FrontierOrder, LadderOrder
from service.paging import PageCursor
from service.problems import documented
from service.reading import JOB_EXAMPLE, StrictRoute
from service.routes.plans import ACCEPTED, BODY, ENDS, MATCHED, WATCHED, PlanFilters, PlanPage, page_of

router = APIRouter(prefix="/v1", tags=["frontiers"], route_class=StrictRoute)
AnswerId = Annotated[str, Path(max_length=64, description="as in `envelope.id`")]
_POST = documented(*BODY, *ENDS, kinds.BUSY, kinds.QUOTA, kinds.UNAVAILABLE, kinds.KEY_REUSED)
_GET = documented(kinds.NOT_FOUND, kinds.INVALID, *ENDS, kinds.UNAVAILABLE)
_FRONTIER = {**JOB_EXAMPLE, "axes": ["time", "memory"], "points": 10}
_LADDER = {**JOB_EXAMPLE, "low": 1, "high": 8}


@router.post("/frontiers", response_model=Frontier, responses={**ACCEPTED, **_POST})
async def create_frontier(
    request: Annotated[FrontierOrder, Body(openapi_examples={"time and memory": {"value": _FRONTIER}})],
    asker: CurrentAsker,
    key: IdempotencyKey = None,
) -> Response:
    """Ask for the configurations that nothing beats on two axes. The request's own objective plays no part."""
    return await asker.ask("frontier", request, key)


@router.post("/ladders", response_model=Ladder, responses={**ACCEPTED, **_POST})
async def create_ladder(
    request: Annotated[LadderOrder, Body(openapi_examples={"up to a node": {"value": _LADDER}})],
    asker: CurrentAsker,
    key: IdempotencyKey = None,
) -> Response:
    """Ask for the fastest configuration on every number of devices: what a scheduler wants to know."""
    return await asker.ask("ladder", request, key)


@router.get("/frontiers", responses=documented(kinds.INVALID, kinds.UNAVAILABLE))
async def list_frontiers(
    caller: CurrentCaller, database: CurrentDatabase, cursor: PageCursor, filters: PlanFilters
) -> PlanPage:
    """Frontiers and those that are being made, newest first."""
    return await page_of(caller, database, cursor, replace(filters, verb="frontier"))


@router.get("/ladders", responses=documented(kinds.INVALID, kinds.UNAVAILABLE))
async def list_ladders(
    caller: CurrentCaller, database: CurrentDatabase, cursor: PageCursor, filters: PlanFilters
) -> PlanPage:
    """Ladders and those that are being made, newest first."""
    return await page_of(caller, database, cursor, replace(filters, verb="ladder"))


@router.get("/frontiers/{answer_id}", response_model=Frontier, responses={**ACCEPTED, **MATCHED, **_GET})
async def get_frontier(answer_id: AnswerId, asker: CurrentAsker, if_none_match: IfNoneMatch = None) -> Response:
    """A frontier, or how far it is, or why there is none."""
    return await asker.look(("frontier",), answer_id, if_none_match)


@router.get("/ladders/{answer_id}", response_model=Ladder, responses={**ACCEPTED, **MATCHED, **_GET})
async def get_ladder(answer_id: AnswerId, asker: CurrentAsker, if_none_match: IfNoneMatch = None) -> Response:
    """A ladder, or how far it is, or why there is none."""
    return await asker.look(("ladder",), answer_id, if_none_match)


@router.delete(
    "/frontiers/{answer_id}",
    responses=documented(kinds.NOT_FOUND, kinds.INVALID, kinds.CONFLICT, kinds.UNAVAILABLE),
)
async def cancel_frontier(answer_id: AnswerId, caller: CurrentCaller, planning: CurrentPlanning) -> PendingPlan:
    """Stop a frontier that is being made."""
    return pending(await planning.cancel(caller, answer_id, kinds=("frontier",)))


@router.delete(
    "/ladders/{answer_id}",
    responses=documented(kinds.NOT_FOUND, kinds.INVALID, kinds.CONFLICT, kinds.UNAVAILABLE),
)
async def cancel_ladder(answer_id: AnswerId, caller: CurrentCaller, planning: CurrentPlanning) -> PendingPlan:
    """Stop a ladder that is being made."""
    return pending(await planning.cancel(caller, answer_id, kinds=("ladder",)))


@router.get("/frontiers/{answer_id}/events", response_class=EventSourceResponse, responses=WATCHED)
async def watch_frontier(found: Annotated[Events, Depends(watched(("frontier",), "answer_id"))]) -> Events:
    """Server-sent events, as of a plan: each point that is found is told."""
    async for event in found:
        yield event


@router.get("/ladders/{answer_id}/events", response_class=EventSourceResponse, responses=WATCHED)
async def watch_ladder(found: Annotated[Events, Depends(watched(("ladder",), "answer_id"))]) -> Events:
    """Server-sent events, as of a plan: each rung that is found is told."""
    async for event in found:
        yield event
