"""Exports: a plan in the words of a training framework."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from planner.plan import Plan
from service import problem_kinds as kinds
from service.callers import CurrentCaller
from service.dependencies import CurrentPlanning
from service.errors import NotFound, NotReady
from service.problems import documented
from service.reading import StrictRoute
from service.routes.plans import PlanId

router = APIRouter(prefix="/v1/plans/{plan_id}/exports", tags=["exports"], route_class=StrictRoute)


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


class ExportTargets(BaseModel):
    """Where a plan can be taken."""

    model_config = ConfigDict(frozen=True)

    plan_id: str
    targets: tuple[str, ...]


@router.get("", responses=documented(kinds.NOT_FOUND, kinds.INVALID, kinds.UNAVAILABLE))
async def list_exports(plan_id: PlanId, caller: CurrentCaller, planning: CurrentPlanning) -> ExportTargets:
    """Targets that exist. Whether one can express this plan shows when it is asked for."""
    from planner import exporters

    await planning.look(caller, plan_id)
    return ExportTargets(plan_id=plan_id, targets=tuple(exporters.targets()))


@router.get(
    "/{target}",
    responses=documented(kinds.NOT_FOUND, kinds.NOT_READY, kinds.NOT_EXPORTABLE, kinds.INVALID, kinds.UNAVAILABLE),
)
async def export_plan(
    plan_id: PlanId,
    target: Annotated[str, Path(description="such as deepspeed", max_length=64)],
    caller: CurrentCaller,
    planning: CurrentPlanning,
    allow_lossy: Annotated[bool, Query(description="export what the target can say, each loss noted")] = False,
) -> Export:
    """The files that make a training framework run the plan."""
    from planner import exporters

    view = await planning.look(caller, plan_id)
    if view.content is None:
        raise NotReady(f"the plan's state is {view.state}; there is nothing to export")
    if target not in exporters.targets():
        raise NotFound(f"no export target {target!r}; there are {', '.join(exporters.targets())}")
    plan = Plan.from_json(view.content.text)
    options = exporters.ExportOptions(allow_lossy=allow_lossy)
    artifacts = await asyncio.to_thread(exporters.render, plan, target, options)
    files = tuple(ExportedFile(path=a.path, media_type=a.media_type, text=a.text) for a in artifacts)
    return Export(plan_id=plan_id, target=target, artifacts=files)
