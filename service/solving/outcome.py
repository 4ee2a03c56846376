"""How solves end, written in one transaction each."""

import hashlib
from collections.abc import Callable

from planner.plan import Plan
from service.problems import Problem
from service.solving.worker import Answer
from service.storage.repositories import Repositories
from service.storage.repositories.solves import Held
from service.storage.tables import StoredPlan

Write = Callable[[Repositories], bool]


def stored_plan(
    text: str, *, plan_id: str, project_id: str, kind: str, content_key: str, calibration_id: str
) -> StoredPlan:
    """A plan as a row: its bytes, and the few figures that lists show."""
    found = Plan.model_validate_json(text)
    prediction, configuration = found.prediction, found.configuration
    return StoredPlan(
        id=plan_id,
        project_id=project_id,
        kind=kind,
        content_key=content_key,
        calibration_id=calibration_id,
        status=found.status,
        model=found.request.model.name[:200],
        request_hash=found.provenance.request_hash,
        content=text,
        etag=hashlib.sha256(text.encode()).hexdigest(),
        step_seconds=None if prediction is None else prediction.time.step_seconds,
        conservative_bytes=None if prediction is None else float(prediction.memory.conservative_bytes),
        world_size=None if configuration is None else configuration.world_size,
    )


def end(
    work: Repositories, held: Held, state: str, *, plan: StoredPlan | None = None, problem: Problem | None = None
) -> bool:
    """End a solve: its state, its plan, its messages, together. False: the lease had passed to another."""
    told = None if problem is None else problem.model_dump(mode="json", exclude_none=True)
    if not work.solves.finish(held, state, problem=told):
        return False
    if plan is not None:
        work.plans.add(plan)
    work.deliveries.release(held.id)
    return True


def state_of(answer: Answer) -> str:
    """Done or failed."""
    return "done" if answer.problem is None else "failed"
