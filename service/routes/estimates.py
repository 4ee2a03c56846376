"""Estimates: the price of exactly one configuration, answered at once."""

from fastapi import APIRouter

from planner.plan import Plan
from service import problems
from service.problems import documented
from service.reading import EstimateBody, StrictRoute, inline

router = APIRouter(prefix="/v1/estimates", tags=["estimates"], route_class=StrictRoute)
_BODY = (problems.INVALID, problems.UNREADABLE, problems.NOT_INLINE, problems.TOO_LARGE, problems.MEDIA)


@router.post("", responses=documented(*_BODY, problems.UNCALIBRATED))
def create_estimate(request: EstimateBody) -> Plan:
    """Price the request's `configuration`. One that does not fit is an answer: status infeasible, with its memory."""
    # Not a coroutine: FastAPI runs it in a thread, so that the event loop goes on.
    from planner.planning import estimate

    return estimate(inline(request))
