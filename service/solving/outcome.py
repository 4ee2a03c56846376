"""How solves end, written in one transaction each."""

import hashlib
from collections.abc import Callable
from datetime import datetime
from typing import Final, NamedTuple

from planner.frontier import Frontier, Ladder
from planner.plan import Plan
from service.problems import Problem
from service.solving.worker import Answer
from service.storage.repositories import Repositories
from service.storage.repositories.solves import Held
from service.storage.tables import StoredPlan

_ANSWERS: Final[dict[str, type[Plan] | type[Frontier] | type[Ladder]]] = {
    "plan": Plan,
    "estimate": Plan,
    "frontier": Frontier,
    "ladder": Ladder,
}
Write = Callable[[Repositories], bool]


def stored_plan(
    text: str, *, plan_id: str, project_id: str, kind: str, content_key: str, calibration_id: str, asked_at: datetime
) -> StoredPlan:
    """A plan as a row: its bytes, and the few figures that lists show. It is as old as its id, the request's."""
    found = _ANSWERS[kind].model_validate_json(text)
    figures = _figures(found)
    return StoredPlan(
        id=plan_id,
        project_id=project_id,
        kind=kind,
        content_key=content_key,
        calibration_id=calibration_id,
        status=_status(found),
        model=found.request.model.name[:200],
        request_hash=found.provenance.request_hash,
        content=text,
        etag=hashlib.sha256(text.encode()).hexdigest(),
        step_seconds=figures.step_seconds,
        conservative_bytes=figures.conservative_bytes,
        world_size=figures.world_size,
        created_at=asked_at,
    )


class _Figures(NamedTuple):
    """Of the one configuration of an answer, if it has one."""

    step_seconds: float | None = None
    conservative_bytes: float | None = None
    world_size: int | None = None


def _figures(found: Plan | Frontier | Ladder) -> _Figures:
    if not isinstance(found, Plan) or found.prediction is None or found.configuration is None:
        return _Figures()
    time, memory = found.prediction.time, found.prediction.memory
    return _Figures(time.step_seconds, float(memory.conservative_bytes), found.configuration.world_size)


def _status(found: Plan | Frontier | Ladder) -> str:
    """A ladder is as good as its rungs together."""
    if not isinstance(found, Ladder):
        return found.status
    rungs = {rung.status for rung in found.rungs}
    if rungs <= {"infeasible"}:
        return "infeasible"
    return "optimal" if rungs <= {"optimal", "infeasible"} else "feasible"


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
