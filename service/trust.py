"""Whether the constants in force still hold: a project's last runs against what is foretold of them now."""

import asyncio
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import structlog

from cost_models.errors import MissingCalibration, SpecError
from planner.fitting.drift import Drift, drifts, noted
from planner.fitting.sifting import beyond, impossible
from planner.fitting.site_runs import QUANTITIES, Foretold, Seen, SiteRun, foretold
from planner.identity import calibration_hash
from planner.plan import Plan
from service import calibrating, metrics, recalibrating
from service.constants import CalibrationShelf, Constants
from service.identifiers import new_id
from service.measuring import Measurement
from service.storage.database import Database
from service.storage.repositories import Repositories
from service.storage.tables import CalibrationVersion, StoredMeasurement

LOOKED_AT: Final = 60
"""Newest measurements of a project among which the last runs of every kind are looked for."""
REFRESH_SECONDS: Final = 60.0
"""Between two looks for the metrics."""
REMEMBERED: Final = 1024
NOTE: Final = "+drift"
"""Ends the version of constants that carry a note of drift."""
_log = structlog.get_logger(__name__)


class Trust:
    """Looks at the last runs. What was priced once is remembered: plans and calibrations never change."""

    def __init__(self, database: Database, shelf: CalibrationShelf) -> None:
        """Nothing is priced yet."""
        self._database, self._shelf = database, shelf
        self._priced: OrderedDict[tuple[str, str], Foretold | None] = OrderedDict()
        self._lock = threading.Lock()
        self._drifting: dict[str, tuple[Drift, ...]] = {}
        self._refreshing: asyncio.Task[None] | None = None
        self._refreshed = -REFRESH_SECONDS

    async def look(self, project_id: str, calibration_id: str | None = None) -> tuple[Constants, tuple[Drift, ...]]:
        """The last runs of every kind against a calibration; against the one in force where none is named."""

        def read(work: Repositories) -> tuple[Constants, Sequence[StoredMeasurement], dict[str, str]]:
            if calibration_id is None:
                constants = self._shelf.current(work, project_id)
            else:
                constants = self._shelf.get(work, project_id, calibration_id)
            rows = work.measurements.newest(project_id, LOOKED_AT)
            new = {row.plan_id for row in rows if (row.plan_id, constants.sha256) not in self._priced}
            return constants, rows, {plan.id: plan.content for plan in work.plans.of(project_id, sorted(new))}

        constants, rows, contents = await self._database.reading(read)
        return constants, await asyncio.to_thread(self._judged, constants, rows, contents)

    async def of_plan(self, project_id: str, plan_id: str) -> tuple[Drift, ...]:
        """What the last runs of the plan's kind say of the constants in force."""
        return self._kind(plan_id, *await self.look(project_id))

    async def set_aside(self, project_id: str, run: Measurement) -> dict[str, str]:
        """Figures of a run that no run of its plan can have, each with why."""

        def read(work: Repositories) -> tuple[Constants, dict[str, str]]:
            constants = self._shelf.current(work, project_id)
            known = (run.plan_id, constants.sha256) in self._priced
            return constants, {} if known else {p.id: p.content for p in work.plans.of(project_id, [run.plan_id])}

        constants, contents = await self._database.reading(read)
        said = await asyncio.to_thread(self._foretold, run.plan_id, constants, contents)
        return {} if said is None else _impossible(run, said)

    async def note(self, project_id: str, plan_id: str) -> tuple[Drift, ...]:
        """The same after a new run; and a new version of the constants where plans should warn, or warn no more."""
        constants, found = await self.look(project_id)
        self._drifting[project_id] = found
        self._tell()
        calibration = noted(constants.calibration, found)
        if calibration is not constants.calibration:
            await self._database.writing(lambda work: self._noted(work, project_id, constants, found))
        return self._kind(plan_id, constants, found)

    def refresh(self) -> None:
        """Look at every project's runs again, now and then: another replica may take the next."""
        due = time.monotonic() - self._refreshed > REFRESH_SECONDS
        if due and (self._refreshing is None or self._refreshing.done()):
            self._refreshed = time.monotonic()
            self._refreshing = asyncio.create_task(self.refreshed())

    async def refreshed(self) -> None:
        """Look, and tell."""
        try:
            projects = await self._database.reading(lambda work: work.measurements.projects())
            for project_id in projects:
                _, self._drifting[project_id] = await self.look(project_id)
        except Exception as error:  # the metrics stay as they were
            _log.warning("drift cannot be looked at", error=str(error)[:200])
        self._tell()

    def _kind(self, plan_id: str, constants: Constants, found: Sequence[Drift]) -> tuple[Drift, ...]:
        said = self._priced.get((plan_id, constants.sha256))
        return tuple(one for one in found if said is not None and (one.framework, one.family) == said.stack)

    def _noted(self, work: Repositories, project_id: str, before: Constants, found: Sequence[Drift]) -> None:
        if self._shelf.current(work, project_id).id != before.id:
            return  # somebody has activated another meanwhile: the next run is held against that
        calibration = noted(before.calibration, found)
        drifting = [f"{one.quantity} of {one.framework} on {one.family}" for one in found if one.drifting]
        version = calibration.version.removesuffix(NOTE) + (NOTE if drifting else "")
        calibration = calibration.model_copy(update={"version": version})
        reason = f"drift: {', '.join(drifting)}" if drifting else "no drift any more: the last runs are as predicted"
        row = CalibrationVersion(
            id=new_id(),
            project_id=project_id,
            version=version[:200],
            content_sha256=calibration_hash(calibration),
            author=recalibrating.AUTOMATIC,
            reason=f"{reason}; else as {before.id}",
            data=dict(calibration.data),
            content=calibration.model_dump_json(),
        )
        work.calibrations.add(row)
        held = work.calibrations.in_force(project_id).held
        calibrating.activate(work, project_id, row.id, author=row.author, reason=row.reason, held=held)

    def _tell(self) -> None:
        for quantity in metrics.QUANTITIES:
            kinds = [one for found in self._drifting.values() for one in found if one.quantity == quantity]
            metrics.DRIFTING.labels(quantity).set(sum(one.drifting for one in kinds))

    def _judged(
        self, constants: Constants, rows: Sequence[StoredMeasurement], contents: dict[str, str]
    ) -> tuple[Drift, ...]:
        found = []
        for row in reversed(rows):
            said = self._foretold(row.plan_id, constants, contents)
            if said is not None:
                found.append(Seen(SiteRun.model_validate(recalibrating.run_of(row)), said))
        return drifts(found)

    def _foretold(self, plan_id: str, constants: Constants, contents: dict[str, str]) -> Foretold | None:
        key = (plan_id, constants.sha256)
        if key not in self._priced:
            if plan_id not in contents:
                return None
            said = _priced(contents[plan_id], constants)
            with self._lock:
                self._priced[key] = said
                while len(self._priced) > REMEMBERED:
                    self._priced.popitem(last=False)
            return said
        return self._priced.get(key)


def _impossible(run: Measurement, said: Foretold) -> dict[str, str]:
    own = run.model_dump(include={"outcome", *QUANTITIES})
    seen = Seen(SiteRun(ref=run.id, at=run.created_at, **own), said)
    found: dict[str, str] = {
        quantity: impossible(seen, quantity) for quantity in QUANTITIES if getattr(run, quantity) is not None
    }
    for name in ("peak_reserved_bytes", "peak_device_bytes"):
        found[name] = beyond(getattr(run, name) or 0, said.job.device)
    return {name: why for name, why in found.items() if why}


def _priced(content: str, constants: Constants) -> Foretold | None:
    plan = Plan.model_validate(json.loads(content))
    if plan.configuration is None:
        return None
    try:
        return foretold(plan.request, plan.configuration, constants.calibration)
    except (MissingCalibration, SpecError):
        return None
