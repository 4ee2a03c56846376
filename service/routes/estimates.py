"""Estimates: the price of exactly one configuration, answered in the same response and kept."""

from fastapi import APIRouter, Response

from planner.plan import Plan
from service import problem_kinds as kinds
from service.answers import final
from service.callers import CurrentCaller
from service.dependencies import CurrentPlanning, IfNoneMatch, RequestId
from service.errors import NotFound
from service.problems import Problem, documented, response
from service.reading import EstimateBody, StrictRoute
from service.routes.plans import PlanId

router = APIRouter(prefix="/v1/estimates", tags=["estimates"], route_class=StrictRoute)
_BODY = (kinds.INVALID, kinds.UNREADABLE, kinds.NOT_INLINE, kinds.TOO_LARGE, kinds.MEDIA)
_WORK = (kinds.UNCALIBRATED, kinds.BUSY, kinds.SOLVE_FAILED, kinds.TIMED_OUT, kinds.UNAVAILABLE)


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
