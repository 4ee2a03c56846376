"""Plans: asked for, waited for, fetched, exported."""

import asyncio
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from planner.plan import Plan
from service import problems
from service.dependencies import CurrentJobs, PreferredWait, RequestId
from service.errors import NotFound, NotReady
from service.jobs.store import Job, State
from service.jobs.worker import Progress
from service.problems import documented, response
from service.reading import PlanBody, StrictRoute, inline

router = APIRouter(prefix="/v1/plans", tags=["plans"], route_class=StrictRoute)
PlanId = Annotated[str, Path(description="as in the plan's `envelope.id`", max_length=64)]
RETRY_SECONDS = 1
_BODY = (problems.INVALID, problems.UNREADABLE, problems.NOT_INLINE, problems.TOO_LARGE, problems.MEDIA)


class PendingPlan(BaseModel):
    """A plan that is being made. Ask for it again at the address in `Location`."""

    model_config = ConfigDict(frozen=True)

    id: str
    state: State
    created_at: datetime
    progress: Progress | None = None


class ExportedFile(BaseModel):
    """One file of an export."""

    model_config = ConfigDict(frozen=True)

    path: str
    media_type: str
    text: str


class Export(BaseModel):
    """A plan in the words of a target."""

    model_config = ConfigDict(frozen=True)

    plan_id: str
    target: str
    artifacts: tuple[ExportedFile, ...] = Field(description="files, by relative path")


@router.post(
    "",
    response_model=Plan,
    responses={
        200: {"description": "the plan; `status` infeasible is an answer, with its reasons"},
        202: {"model": PendingPlan, "description": "accepted; the plan will be at `Location`"},
        **documented(*_BODY, problems.UNCALIBRATED, problems.BUSY, problems.SOLVE_FAILED, problems.TIMED_OUT),
    },
)
async def create_plan(request: PlanBody, jobs: CurrentJobs, wait: PreferredWait, request_id: RequestId) -> Response:
    """Ask for the best configuration. Without `Prefer: wait=N` the answer is 202 at once."""
    job = jobs.submit(inline(request))
    if wait is not None:
        await jobs.wait(job, wait)
    headers = {"Location": f"/v1/plans/{job.id}"}
    if wait is not None:
        headers["Preference-Applied"] = f"wait={wait:g}"
    return _answer(job, headers, request_id)


@router.get(
    "/{plan_id}",
    response_model=Plan,
    responses={
        202: {"model": PendingPlan, "description": "still being made"},
        **documented(
            *(problems.NOT_FOUND, problems.INVALID, problems.UNCALIBRATED, problems.SOLVE_FAILED, problems.TIMED_OUT)
        ),
    },
)
async def get_plan(plan_id: PlanId, jobs: CurrentJobs, request_id: RequestId) -> Response:
    """A plan, or how far it is, or why there is none."""
    return _answer(jobs.get(plan_id), {}, request_id)


@router.get(
    "/{plan_id}/exports/{target}",
    responses=documented(problems.NOT_FOUND, problems.NOT_READY, problems.NOT_EXPORTABLE, problems.INVALID),
)
async def export_plan(
    plan_id: PlanId,
    target: Annotated[str, Path(description="such as deepspeed", max_length=64)],
    jobs: CurrentJobs,
    allow_lossy: Annotated[bool, Query(description="export what the target can say, each loss noted")] = False,
) -> Export:
    """The files that make a training framework run the plan."""
    from planner import exporters

    job = jobs.get(plan_id)
    if job.plan_json is None:
        raise NotReady(f"the plan's state is {job.state}; there is nothing to export yet")
    if target not in exporters.targets():
        raise NotFound(f"no export target {target!r}; there are {', '.join(exporters.targets())}")
    plan = Plan.from_json(job.plan_json)
    options = exporters.ExportOptions(allow_lossy=allow_lossy)
    artifacts = await asyncio.to_thread(exporters.render, plan, target, options)
    files = tuple(ExportedFile(path=a.path, media_type=a.media_type, text=a.text) for a in artifacts)
    return Export(plan_id=plan_id, target=target, artifacts=files)


def _answer(job: Job, headers: dict[str, str], request_id: str | None) -> Response:
    """The plan, the pending resource, or the problem, whichever there is."""
    if job.problem is not None:
        return response(job.problem, headers, instance=request_id)
    if job.plan_json is not None:
        # Written by the planner's own type in the worker: not parsed and checked a second time.
        return Response(job.plan_json, media_type="application/json", headers=headers)
    pending = PendingPlan(id=job.id, state=job.state, created_at=job.created_at, progress=job.progress)
    headers = {"Retry-After": str(RETRY_SECONDS), **headers}
    return Response(pending.model_dump_json(), 202, media_type="application/json", headers=headers)
