"""Calibrations: every version of the constants, with who added it, why, and from which data."""

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Path, Response
from pydantic import Discriminator, Tag

from cost_models.specs.base import Spec
from planner.fitting.drift import Drift
from service import calibrating, recalibrating
from service import problem_kinds as kinds
from service.answers import PendingPlan, answer
from service.calibrating import ActivationOrder, CalibrationDetail, CalibrationOrder, CalibrationSummary
from service.callers import Caller, CurrentCaller
from service.dependencies import CurrentDatabase, CurrentRuntime, IdempotencyKey, PreferredWait, RequestId
from service.errors import NotFound
from service.idempotency import once
from service.paging import CreatedWhen, PageCursor, Paged
from service.problems import documented
from service.reading import WideRoute
from service.recalibrating import VERB, MeasurementsOrder
from service.runtime import Runtime
from service.storage.database import Database
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
LEARNED: dict[str, Any] = {
    "from": "measurements",
    "reason": "a week on the new interconnect",
    "created_after": "2026-11-01T00:00:00Z",
}
ROLL_BACK: dict[str, Any] = {"reason": "predicted steps were too short"}
_BODY = (kinds.INVALID, kinds.UNREADABLE, kinds.TOO_LARGE, kinds.MEDIA, kinds.KEY_REUSED)
_ENDS = (kinds.SOLVE_FAILED, kinds.TIMED_OUT, kinds.QUOTA)
CalibrationId = Annotated[str, Path(max_length=64)]


def _kind(value: Any) -> str:
    stated = value.get("from") if isinstance(value, dict) else getattr(value, "from_", None)
    return "whole" if stated is None else "measurements"


AnyOrder = Annotated[
    Annotated[CalibrationOrder, Tag("whole")] | Annotated[MeasurementsOrder, Tag("measurements")], Discriminator(_kind)
]


@dataclass(frozen=True, slots=True)
class RouteParts:
    """What every operation here needs."""

    runtime: Runtime
    database: Database
    request_id: str | None


async def _parts(runtime: CurrentRuntime, database: CurrentDatabase, request_id: RequestId) -> RouteParts:
    return RouteParts(runtime, database, request_id)


Parts = Annotated[RouteParts, Depends(_parts)]


class CalibrationDrift(Spec):
    """Whether a version still holds."""

    calibration_id: str
    version: str
    drifting: bool
    kinds: tuple[Drift, ...]


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


@router.post(
    "",
    status_code=201,
    response_model=CalibrationDetail,
    responses={
        202: {"model": PendingPlan, "description": "being made of measurements; it will be at `Location`"},
        **documented(*_BODY, *_ENDS, kinds.UNAVAILABLE),
    },
)
async def add_calibration(
    order: Annotated[
        AnyOrder,
        Body(
            openapi_examples={
                "from measurements": {"summary": "made of the project's own runs", "value": LEARNED},
                "a site's own": {"value": EXAMPLE},
            }
        ),
    ],
    caller: CurrentCaller,
    parts: Parts,
    wait: PreferredWait,
    response: Response,
    key: IdempotencyKey = None,
) -> CalibrationDetail | Response:
    """Answer with these constants from now on; what was answered before names the version it was answered with.

    `{"from": "measurements"}` corrects the installation's constants with all runs of the project, in a solver process:
    without `Prefer: wait=N` the answer is 202. What is posted whole stays in force, whatever runs come in, until
    another version is activated.
    """
    runtime = parts.runtime

    def add(work: Repositories) -> str:
        if isinstance(order, CalibrationOrder):
            return calibrating.add(work, caller, order)
        prior = runtime.shelf.installed(work)
        return recalibrating.ask(work, caller.project_id, order, prior, author=caller.name, automatic=False)

    made = await parts.database.writing(lambda work: once(work, caller, key, VERB, order, lambda: add(work))[0])
    location = f"/v1/calibrations/{made}"
    response.headers["Location"] = location
    if isinstance(order, MeasurementsOrder):
        runtime.dispatcher.wake()
        return await _made(parts, caller, made, wait or 0.0, {"Location": location})
    return await parts.database.reading(lambda work: _one(work, caller, runtime, made))


@router.get(
    "/{calibration_id}",
    response_model=CalibrationDetail,
    responses={
        202: {"model": PendingPlan, "description": "being made of measurements"},
        **documented(kinds.NOT_FOUND, kinds.INVALID, *_ENDS, kinds.UNAVAILABLE),
    },
)
async def get_calibration(
    calibration_id: CalibrationId, caller: CurrentCaller, parts: Parts, wait: PreferredWait
) -> CalibrationDetail | Response:
    """One version with its factors; of one that was made from measurements, what each of them did."""

    def look(work: Repositories) -> CalibrationDetail | None:
        known = work.calibrations.get(caller.project_id, calibration_id) is not None
        return _one(work, caller, parts.runtime, calibration_id) if known else None

    found = await parts.database.reading(look)
    return found or await _made(parts, caller, calibration_id, wait or 0.0, {})


@router.post(
    "/{calibration_id}/activate", responses=documented(*_BODY, kinds.NOT_FOUND, kinds.CONFLICT, kinds.UNAVAILABLE)
)
async def activate_calibration(
    calibration_id: CalibrationId,
    order: Annotated[ActivationOrder, Body(openapi_examples={"roll back": {"value": ROLL_BACK}})],
    caller: CurrentCaller,
    parts: Parts,
    key: IdempotencyKey = None,
) -> CalibrationDetail:
    """Answer with an earlier or later version from now on. Unless `hold` is false it stays, whatever runs come in."""

    def activate(work: Repositories) -> CalibrationDetail:
        what, own = f"activation of {calibration_id}", parts.runtime.shelf.installed(work).id
        once(work, caller, key, what, order, lambda: calibrating.put_in_force(work, caller, calibration_id, order, own))
        return _one(work, caller, parts.runtime, calibration_id)

    return await parts.database.writing(activate)


@router.get("/{calibration_id}/drift", responses=documented(kinds.NOT_FOUND, kinds.INVALID, kinds.UNAVAILABLE))
async def get_drift(calibration_id: CalibrationId, caller: CurrentCaller, parts: Parts) -> CalibrationDrift:
    """The last runs of every framework and device family, held against this version: whether it still holds."""
    await parts.database.reading(lambda work: _one(work, caller, parts.runtime, calibration_id))
    constants, found = await parts.runtime.trust.look(caller.project_id, calibration_id)
    return CalibrationDrift(
        calibration_id=calibration_id,
        version=constants.calibration.version,
        drifting=any(one.drifting for one in found),
        kinds=found,
    )


async def _made(
    parts: RouteParts, caller: Caller, calibration_id: str, wait: float, headers: dict[str, str]
) -> CalibrationDetail | Response:
    """What there is of a calibration that is made from measurements when it has ended, or the wait is over."""
    view = await parts.runtime.planning.look(caller, calibration_id, wait=wait, kinds=(VERB,))
    if view.state != "done":
        return answer(view, headers, parts.request_id)
    found = await parts.database.reading(lambda work: _one(work, caller, parts.runtime, calibration_id))
    return found


def _one(work: Repositories, caller: Caller, runtime: Runtime, calibration_id: str) -> CalibrationDetail:
    row = work.calibrations.get(caller.project_id, calibration_id)
    if row is None:
        raise NotFound("no calibration of this id is known")
    current = runtime.shelf.current(work, caller.project_id).id
    return calibrating.detail(work, caller.project_id, row, current)
