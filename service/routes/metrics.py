"""What Prometheus scrapes; with a key where callers have them (`authorization` of the scrape configuration)."""

import asyncio

from fastapi import APIRouter, Response

from service import metrics as figures
from service import problem_kinds as kinds
from service.callers import CurrentCaller
from service.dependencies import CurrentRuntime
from service.errors import StorageUnavailable
from service.problems import documented
from service.reading import StrictRoute
from service.security.authenticate import SCRAPE_SECONDS
from service.storage.repositories import Repositories

router = APIRouter(tags=["health"], route_class=StrictRoute)


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}}, **documented(kinds.INVALID)},
)
async def metrics(caller: CurrentCaller, runtime: CurrentRuntime) -> Response:
    """Prometheus text. The depth of the queue is missing while the database is away."""

    def depth(work: Repositories) -> dict[str, int]:
        return work.solves.depth()

    figures.QUEUE.clear()
    runtime.trust.refresh()
    asked = asyncio.create_task(runtime.database.reading(depth))
    done, _ = await asyncio.wait((asked,), timeout=SCRAPE_SECONDS)
    if done and not isinstance(asked.exception(), StorageUnavailable):
        found = asked.result()
    else:
        asked.add_done_callback(lambda task: task.cancelled() or task.exception())
        found = {}
    for state, count in found.items():
        figures.QUEUE.labels(state).set(count)
    return Response(figures.text(), media_type=figures.CONTENT_TYPE)
