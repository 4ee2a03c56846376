"""Calibrations from stored measurements: asked for or due, queued like plans, kept with what stands behind them."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

from pydantic import AwareDatetime, ConfigDict, Field

from cost_models.specs.base import Spec
from planner.fitting.learning import Learned
from planner.identity import calibration_hash, digest
from service import calibrating
from service.constants import Constants
from service.errors import TooMuch
from service.evidence import AsideMeasurement, Evidence, UsedMeasurement
from service.identifiers import new_id
from service.solving.worker import Task
from service.storage.repositories import Repositories
from service.storage.repositories.base import Created
from service.storage.tables import CalibrationVersion, Solve, StoredMeasurement, StoredPlan
from service.texts import Line

VERB: Final = "calibration"
MOST: Final = 2000
"""Measurements that one calibration follows: the newest."""
MOST_LIVE: Final = 4
"""Calibrations of one project that are being made at the same time."""
AUTOMATIC: Final = "meshwright"
"""Author of what nobody asked for."""


class MeasurementsOrder(Spec):
    """A calibration to be made from the project's own measurements."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, serialize_by_alias=True, validate_by_name=True
    )

    from_: Literal["measurements"] = Field(alias="from")
    reason: Line = Field(min_length=1, max_length=2000, description="why it replaces the one before")
    created_after: AwareDatetime | None = Field(default=None, description="only measurements reported later")
    created_before: AwareDatetime | None = Field(default=None, description="only measurements reported earlier")
    families: tuple[str, ...] = Field(default=(), max_length=50, description="only of these device families; () is all")
    exclude: tuple[str, ...] = Field(default=(), max_length=MOST, description="ids of measurements to leave out")
    activate: bool = Field(default=True, description="whether new answers are made with it")


def ask(
    work: Repositories, project_id: str, order: MeasurementsOrder, prior: Constants, *, author: str, automatic: bool
) -> str:
    """Queue it, unless one of the same measurements is under way; its id, which the calibration will have.

    Raises:
        TooMuch: as many as a project may have are being made.
    """
    which = {} if automatic else order.model_dump(mode="json", exclude={"reason"})
    content_key = digest({"verb": VERB, "automatic": automatic, "prior": prior.sha256, **which})
    live = work.solves.live(project_id, content_key)
    if live is not None:
        return live
    if work.solves.count_live(project_id, VERB) >= MOST_LIVE:
        raise TooMuch(f"{MOST_LIVE} calibrations of this project are being made, the most that may")
    solve = Solve(
        id=new_id(),
        project_id=project_id,
        verb=VERB,
        options={"author": author, "automatic": automatic},
        request=order.model_dump_json(),
        content_key=content_key,
        calibration_id=prior.id,
        model="",
        gpus=0,
        objective="",
        created_by=author,
    )
    work.solves.add(solve)
    return solve.id


def due(work: Repositories, row: StoredMeasurement, prior: Constants, every: int) -> str | None:
    """Queue a calibration where `every` runs have come in since the last one (0: never), or a run is out of memory.

    While a version is held in force by somebody, nothing is made.
    """
    project = row.project_id
    if not every or work.calibrations.in_force(project).held:
        return None
    if row.outcome == "oom":
        reason = f"a run of plan {row.plan_id} ran out of memory"
    else:
        work.projects.one_by_one(project)  # so that of runs reported at once the last one sees all
        learned = work.calibrations.learned_last(project)
        last = max(work.solves.newest(project, VERB) or "", "" if learned is None else learned.id)
        came = work.measurements.count(project, "ok", after=last)
        if came < every:
            return None
        reason = f"{came} runs since the last calibration"
    order = MeasurementsOrder(from_="measurements", reason=reason)
    return ask(work, project, order, prior, author=AUTOMATIC, automatic=True)


def task_of(work: Repositories, solve: Solve, prior: Constants) -> Task:
    """What a worker learns from: the measurements as they are now, each with its plan."""
    order = MeasurementsOrder.model_validate_json(solve.request)
    created = Created(order.created_after, order.created_before)
    rows = work.measurements.newest(solve.project_id, MOST, created=created)
    wanted = [row for row in rows if row.id not in set(order.exclude)]
    plans = work.plans.of(solve.project_id, sorted({row.plan_id for row in wanted}))
    found = [plan for plan in _run_plans(plans, wanted) if not order.families or _families(plan) & set(order.families)]
    return Task(id=solve.id, verb="calibration", options={"plans": found}, calibration=prior.calibration)


def keep(work: Repositories, solve: Solve, text: str) -> None:
    """Store what was learned, and answer with it unless somebody has decided otherwise meanwhile."""
    learned, order = Learned.model_validate_json(text), MeasurementsOrder.model_validate_json(solve.request)
    automatic, author = bool(solve.options["automatic"]), str(solve.options["author"])
    calibration = learned.calibration
    rows = work.measurements.some(solve.project_id, learned.used)
    aside = (AsideMeasurement(measurement_id=one.ref, quantity=one.quantity, why=one.why) for one in learned.set_aside)
    evidence = Evidence(
        automatic=automatic,
        prior=solve.calibration_id,
        used=tuple(UsedMeasurement(measurement_id=row.id, sha256=_hash(row)) for row in rows),
        set_aside=tuple(aside),
        families=learned.families,
        raised=learned.raised,
        drift=learned.drift,
    )
    work.calibrations.add(
        CalibrationVersion(
            id=solve.id,
            project_id=solve.project_id,
            version=calibration.version[:200],
            content_sha256=calibration_hash(calibration),
            author=author,
            reason=order.reason,
            data=dict(calibration.data),
            content=calibration.model_dump_json(),
            evidence=evidence.model_dump(mode="json"),
        )
    )
    if order.activate and not (automatic and work.calibrations.in_force(solve.project_id).held):
        calibrating.activate(work, solve.project_id, solve.id, author=author, reason=order.reason, held=False)


def run_of(row: StoredMeasurement) -> dict[str, Any]:
    """A measurement as `planner.fitting.site_runs.SiteRun` reads it."""
    kept = ("step_seconds", "peak_allocated_bytes", "requested_bytes")
    figures = {name: row.content[name] for name in kept if name in row.content}
    return {"ref": row.id, "at": row.created_at.isoformat(), "outcome": row.outcome, **figures}


def _run_plans(plans: Sequence[StoredPlan], rows: Sequence[StoredMeasurement]) -> Iterator[dict[str, Any]]:
    """Plans with a configuration, as plain values: they are read by the worker, which has the time."""
    of_plan: dict[str, list[StoredMeasurement]] = {plan.id: [] for plan in plans}
    for row in rows:
        if row.plan_id in of_plan:
            of_plan[row.plan_id].append(row)
    for plan in sorted(plans, key=lambda plan: plan.id):
        content = json.loads(plan.content)
        runs = [run_of(row) for row in of_plan[plan.id]]
        if content["configuration"] is not None:
            yield {"question": content["request"], "configuration": content["configuration"], "runs": runs}


def _families(plan: dict[str, Any]) -> set[str]:
    return {pool["device"]["family"] for pool in plan["question"]["cluster"]["pools"]}


def _hash(row: StoredMeasurement) -> str:
    return digest({"id": row.id, "plan_id": row.plan_id, "outcome": row.outcome, **row.content})
