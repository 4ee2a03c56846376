"""Plans as responses: the stored bytes with their ETag, the pending resource, or the problem."""

from collections.abc import AsyncIterator
from datetime import datetime

from fastapi import Response
from fastapi.sse import ServerSentEvent
from pydantic import BaseModel, ConfigDict, Field

from service.errors import NotFound, Unauthenticated
from service.problems import problem_of, response
from service.solving.pool import cancelled
from service.solving.service import View
from service.solving.worker import Progress
from service.storage.repositories.plans import Content

RETRY_SECONDS = 1
LONGEST_RETRY_SECONDS = 30


class PendingPlan(BaseModel):
    """A plan that is being made. Ask for it again at the address in `Location`."""

    model_config = ConfigDict(frozen=True)

    id: str
    state: str
    created_at: datetime
    progress: Progress | None = None
    expected_seconds: float | None = Field(default=None, description="what alike ones took; missing: there were none")


def pending(view: View) -> PendingPlan:
    """How far a plan is."""
    return PendingPlan(
        id=view.id,
        state=view.state,
        created_at=view.created_at,
        progress=view.progress,
        expected_seconds=view.expected_seconds,
    )


async def events(views: AsyncIterator[View]) -> AsyncIterator[ServerSentEvent]:
    """Views as server-sent events; `refused` is the last one where the caller's key was taken back meanwhile."""
    try:
        async for view in views:
            yield ServerSentEvent(event="ended" if view.final else "progress", data=pending(view))
    except Unauthenticated as error:
        yield ServerSentEvent(event="refused", data=problem_of(error))


def final(content: Content, headers: dict[str, str] | None = None, *, if_none_match: str | None = None) -> Response:
    """A stored plan. It never changes, so that a copy with its ETag is as good (RFC 9110, section 13.1.2)."""
    tag = f'"{content.etag}"'
    headers = {"ETag": tag, "Cache-Control": "private, no-cache", **(headers or {})}
    if if_none_match is not None and _matches(if_none_match, tag):
        return Response(status_code=304, headers=headers)
    return Response(content.text, media_type="application/json", headers=headers)


def answer(
    view: View, headers: dict[str, str], request_id: str | None, *, if_none_match: str | None = None
) -> Response:
    """The plan, the pending resource, or the problem, whichever there is."""
    if view.content is not None:
        return final(view.content, headers, if_none_match=if_none_match)
    if view.problem is not None:
        return response(view.problem, headers, instance=request_id)
    if view.state == "cancelled":
        return response(problem_of(cancelled()), headers, instance=request_id)
    if view.final:
        raise NotFound("the plan has been pruned")
    headers = {"Retry-After": str(_retry_seconds(view)), **headers}
    return Response(pending(view).model_dump_json(), 202, media_type="application/json", headers=headers)


def _retry_seconds(view: View) -> int:
    """A tenth of what it is expected to take, so that few ask in vain and nobody asks much too late."""
    return max(RETRY_SECONDS, min(LONGEST_RETRY_SECONDS, int((view.expected_seconds or 0.0) / 10)))


def _matches(stated: str, tag: str) -> bool:
    return stated.strip() == "*" or tag in {part.strip().removeprefix("W/") for part in stated.split(",")}
