"""Estimates: the price of exactly one configuration, answered in the same response."""

from fastapi import APIRouter, Response

from planner.plan import Plan
from service import problems
from service.dependencies import Estimates, RequestId
from service.problems import documented, response
from service.reading import EstimateBody, StrictRoute, inline

router = APIRouter(prefix="/v1/estimates", tags=["estimates"], route_class=StrictRoute)
_BODY = (problems.INVALID, problems.UNREADABLE, problems.NOT_INLINE, problems.TOO_LARGE, problems.MEDIA)
_WORK = (problems.UNCALIBRATED, problems.BUSY, problems.SOLVE_FAILED, problems.TIMED_OUT)


@router.post("", response_model=Plan, responses=documented(*_BODY, *_WORK))
async def create_estimate(request: EstimateBody, estimates: Estimates, request_id: RequestId) -> Response:
    """Price the request's `configuration`. One that does not fit is an answer: status infeasible, with its memory."""
    job = estimates.submit(inline(request), "estimate")
    await job.ended.wait()
    if job.problem is not None:
        return response(job.problem, instance=request_id)
    return Response(job.plan_json, media_type="application/json")
