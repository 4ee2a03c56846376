"""Measurements: what runs of plans measured; only ever added to."""

from typing import Annotated

from fastapi import APIRouter, Body, Path, Query, Response

from service import measuring, metrics, recalibrating
from service import problem_kinds as kinds
from service.callers import Caller, CurrentCaller
from service.dependencies import CurrentDatabase, CurrentRuntime, IdempotencyKey, Settings
from service.errors import NotFound
from service.idempotency import once
from service.measuring import Measurement, MeasurementAnswer, MeasurementOrder, Outcome
from service.paging import CreatedWhen, Cursor, PageCursor, Paged
from service.problems import documented
from service.reading import StrictRoute
from service.routes.plans import PlanId
from service.storage.database import Database
from service.storage.repositories import Repositories
from service.storage.repositories.base import Created

router = APIRouter(prefix="/v1", tags=["measurements"], route_class=StrictRoute)
EXAMPLE = {
    "outcome": "ok",
    "step_seconds": 17.4,
    "peak_allocated_bytes": 63_200_000_000,
    "steps": 200,
    "versions": {"torch": "2.13.0", "deepspeed": "0.19.8"},
}
_BODY = (kinds.INVALID, kinds.UNREADABLE, kinds.TOO_LARGE, kinds.MEDIA, kinds.KEY_REUSED)


class MeasurementPage(Paged):
    """Measurements, newest first."""

    items: tuple[Measurement, ...]


@router.post(
    "/plans/{plan_id}/measurements", status_code=201, responses=documented(*_BODY, kinds.NOT_FOUND, kinds.UNAVAILABLE)
)
async def add_measurement(
    plan_id: PlanId,
    order: Annotated[MeasurementOrder, Body(openapi_examples={"a run": {"value": EXAMPLE}})],
    caller: CurrentCaller,
    database: CurrentDatabase,
    runtime: CurrentRuntime,
    settings: Settings,
    response: Response,
    key: IdempotencyKey = None,
) -> MeasurementAnswer:
    """Keep what a run of the plan measured, or that it ran out of memory; `drift` says whether predictions still hold.

    The project's constants are corrected anew when enough runs have come in (`MESHWRIGHT_RECALIBRATE_AFTER`).
    """

    def make(work: Repositories) -> str:
        row = measuring.add(work, caller, plan_id, order)
        queued[0] = recalibrating.due(work, row, runtime.shelf.installed(work), settings.recalibrate_after)
        return row.id

    def add(work: Repositories) -> Measurement:
        what, queued[0] = f"measurement of {plan_id}", None
        made, new[0] = once(work, caller, key, what, order, lambda: make(work))
        return _one(work, caller, made)

    new: list[bool] = [False]
    queued: list[str | None] = [None]
    found = await database.writing(add)
    if queued[0] is not None:
        runtime.dispatcher.wake()
    drift = await runtime.trust.note(caller.project_id, plan_id)
    aside = await runtime.trust.set_aside(caller.project_id, found)
    for quantity, ratio in found.ratios.items() if new[0] else ():
        if quantity not in aside:
            metrics.ERROR_RATIO.labels(quantity).observe(ratio)
    response.headers["Location"] = f"/v1/measurements/{found.id}"
    return MeasurementAnswer(**dict(found), drift=drift, set_aside=aside)


@router.get("/plans/{plan_id}/measurements", responses=documented(kinds.NOT_FOUND, kinds.INVALID, kinds.UNAVAILABLE))
async def list_measurements_of_plan(
    plan_id: PlanId, caller: CurrentCaller, database: CurrentDatabase, cursor: PageCursor, created: CreatedWhen
) -> MeasurementPage:
    """What runs of one plan measured, newest first, beside what it predicted."""
    return await _page(database, caller, cursor, created, plan_id=plan_id)


@router.get("/measurements", responses=documented(kinds.INVALID, kinds.UNAVAILABLE))
async def list_measurements(
    caller: CurrentCaller,
    database: CurrentDatabase,
    cursor: PageCursor,
    created: CreatedWhen,
    plan_id: Annotated[str | None, Query(max_length=64)] = None,
    outcome: Outcome | None = None,
) -> MeasurementPage:
    """Measurements of all plans, newest first."""
    return await _page(database, caller, cursor, created, plan_id=plan_id, outcome=outcome, must_exist=False)


@router.get("/measurements/{measurement_id}", responses=documented(kinds.NOT_FOUND, kinds.INVALID, kinds.UNAVAILABLE))
async def get_measurement(
    measurement_id: Annotated[str, Path(max_length=64)],
    caller: CurrentCaller,
    database: CurrentDatabase,
    runtime: CurrentRuntime,
) -> MeasurementAnswer:
    """One measurement."""
    found = await database.reading(lambda work: _one(work, caller, measurement_id))
    drift = await runtime.trust.of_plan(caller.project_id, found.plan_id)
    return MeasurementAnswer(
        **dict(found), drift=drift, set_aside=await runtime.trust.set_aside(caller.project_id, found)
    )


def _one(work: Repositories, caller: Caller, measurement_id: str) -> Measurement:
    row = work.measurements.get(caller.project_id, measurement_id)
    if row is None:
        raise NotFound("no measurement of this id is known")
    return measuring.with_predictions(work, caller, [row])[0]


async def _page(
    database: Database,
    caller: Caller,
    cursor: Cursor,
    created: Created,
    *,
    plan_id: str | None,
    outcome: Outcome | None = None,
    must_exist: bool = True,
) -> MeasurementPage:
    def look(work: Repositories) -> tuple[tuple[Measurement, ...], str | None]:
        if must_exist and work.plans.content(caller.project_id, plan_id or "") is None:
            raise NotFound("no finished plan of this id is known")
        page = work.measurements.page(
            caller.project_id,
            plan_id=plan_id,
            outcome=outcome,
            created=created,
            after=cursor.after,
            size=cursor.size,
        )
        return measuring.with_predictions(work, caller, list(page.rows)), page.next_after

    items, after = await database.reading(look)
    return MeasurementPage(items=items, next_page_token=cursor.next(after))
