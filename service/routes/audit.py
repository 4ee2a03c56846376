"""The audit: who changed something in the project, or tried to."""

from datetime import datetime
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, ConfigDict

from service import problem_kinds as kinds
from service.callers import CurrentCaller
from service.dependencies import CurrentDatabase
from service.paging import CreatedWhen, PageCursor, Paged
from service.problems import documented
from service.reading import StrictRoute

router = APIRouter(prefix="/v1/audit", tags=["audit"], route_class=StrictRoute)


class AuditItem(BaseModel):
    """One request, or one command."""

    model_config = ConfigDict(frozen=True, from_attributes=True)

    id: str
    caller: str
    key_id: str | None
    action: str
    target: str
    status: int
    request_id: str | None
    address: str | None
    times: int
    created_at: datetime


class AuditPage(Paged):
    """Entries, newest first."""

    items: tuple[AuditItem, ...]


class AuditFilters(NamedTuple):
    """Which entries are listed."""

    caller: str | None
    action: str | None
    status: int | None


async def _filters(
    caller: Annotated[str | None, Query(alias="caller", max_length=200, description="name of the key")] = None,
    action: Annotated[str | None, Query(max_length=200, description="operation id, or `authenticate`")] = None,
    status: Annotated[int | None, Query(ge=0, le=599)] = None,
) -> AuditFilters:
    return AuditFilters(caller, action, status)


@router.get("", responses=documented(kinds.INVALID, kinds.UNAVAILABLE))
async def list_audit(
    caller: CurrentCaller,
    database: CurrentDatabase,
    cursor: PageCursor,
    created: CreatedWhen,
    filters: Annotated[AuditFilters, Depends(_filters)],
) -> AuditPage:
    """Entries of the project, newest first; an entry appears within a second of its request."""
    page = await database.reading(
        lambda work: work.audit.page(
            caller.project_id, **filters._asdict(), created=created, after=cursor.after, size=cursor.size
        )
    )
    items = tuple(AuditItem.model_validate(row) for row in page.rows)
    return AuditPage(items=items, next_page_token=cursor.next(page.next_after))
