"""Calibrations: every version of the constants, with who added it, why, and from which data."""

from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Response

from service import calibrating
from service import problem_kinds as kinds
from service.calibrating import CalibrationDetail, CalibrationOrder, CalibrationSummary
from service.callers import Caller, CurrentCaller
from service.dependencies import CurrentDatabase, CurrentRuntime, IdempotencyKey
from service.errors import NotFound
from service.idempotency import once
from service.paging import CreatedWhen, PageCursor, Paged
from service.problems import documented
from service.reading import WideRoute
from service.runtime import Runtime
from service.storage.repositories import Repositories

router = APIRouter(prefix="/v1/calibrations", tags=["calibrations"], route_class=WideRoute)
EXAMPLE: dict[str, Any] = {
    "reason": "200 runs on the new interconnect",
    "data": {"runs.csv": "0" * 64},
    "calibration": {
        "version": "lab-7",
        "factors": {"gemm_efficiency.a100.bf16": {"value": 0.79, "source": "runs.csv, median"}},
    },
}
_BODY = (kinds.INVALID, kinds.UNREADABLE, kinds.TOO_LARGE, kinds.MEDIA, kinds.KEY_REUSED)


class CalibrationPage(Paged):
    """Versions, newest first."""

    items: tuple[CalibrationSummary, ...]


@router.get("", responses=documented(kinds.INVALID, kinds.UNAVAILABLE))
async def list_calibrations(
    caller: CurrentCaller,
    database: CurrentDatabase,
    runtime: CurrentRuntime,
    cursor: PageCursor,
    created: CreatedWhen,
) -> CalibrationPage:
    """Versions of the project and of the installation; one is current."""

    def look(work: Repositories) -> tuple[tuple[CalibrationSummary, ...], str | None]:
        current = runtime.shelf.current(work, caller.project_id).id
        page = work.calibrations.page(caller.project_id, created=created, after=cursor.after, size=cursor.size)
        return tuple(calibrating.summary(row, current) for row in page.rows), page.next_after

    items, after = await database.reading(look)
    return CalibrationPage(items=items, next_page_token=cursor.next(after))


@router.post("", status_code=201, responses=documented(*_BODY, kinds.UNAVAILABLE))
async def add_calibration(
    order: Annotated[CalibrationOrder, Body(openapi_examples={"a site's own": {"value": EXAMPLE}})],
    caller: CurrentCaller,
    database: CurrentDatabase,
    runtime: CurrentRuntime,
    response: Response,
    key: IdempotencyKey = None,
) -> CalibrationDetail:
    """Answer with these constants from now on; what was answered before names the version it was answered with.

    To go back, add the earlier version again: the reason says so.
    """

    def add(work: Repositories) -> CalibrationDetail:
        made, _ = once(work, caller, key, "calibration", order, lambda: calibrating.add(work, caller, order))
        return _one(work, caller, runtime, made)

    found = await database.writing(add)
    response.headers["Location"] = f"/v1/calibrations/{found.id}"
    return found


@router.get("/{calibration_id}", responses=documented(kinds.NOT_FOUND, kinds.INVALID, kinds.UNAVAILABLE))
async def get_calibration(
    calibration_id: Annotated[str, Path(max_length=64)],
    caller: CurrentCaller,
    database: CurrentDatabase,
    runtime: CurrentRuntime,
) -> CalibrationDetail:
    """One version with its factors."""
    return await database.reading(lambda work: _one(work, caller, runtime, calibration_id))


def _one(work: Repositories, caller: Caller, runtime: Runtime, calibration_id: str) -> CalibrationDetail:
    row = work.calibrations.get(caller.project_id, calibration_id)
    if row is None:
        raise NotFound("no calibration of this id is known")
    return calibrating.detail(row, runtime.shelf.current(work, caller.project_id).id)
