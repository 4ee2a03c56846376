"""Answers: kept to the byte, never changed."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from sqlalchemy import bindparam, select

from service.storage.repositories.base import ALWAYS, Created, Page, Repository
from service.storage.tables import StoredPlan

Kinds = tuple[str, ...]
PLANS: Final[Kinds] = ("plan", "estimate")
"""Kinds of answers that hold one configuration."""


class Content(NamedTuple):
    """The bytes of a plan as served."""

    id: str
    text: str
    etag: str
    created_at: datetime


_ROW = StoredPlan.__table__.c
# Built once: most requests ask one of these, and to build a query takes longer than to answer it.
_CONTENT = select(_ROW.id, _ROW.content, _ROW.etag, _ROW.created_at, _ROW.kind).where(
    _ROW.project_id == bindparam("project_id")
)
_OF_ID = _CONTENT.where(_ROW.id == bindparam("plan_id"))
_OF_KEY = _CONTENT.where(_ROW.content_key == bindparam("content_key"))


class Plans(Repository):
    """Plans and estimates."""

    def add(self, plan: StoredPlan) -> None:
        """Keep an answer."""
        self._session.add(plan)
        self._session.flush()

    def get(self, project_id: str, plan_id: str) -> StoredPlan | None:
        """The plan or estimate of an id."""
        row = self._session.get(StoredPlan, plan_id)
        mine = row is not None and row.project_id == project_id and row.kind in PLANS
        return row if mine else None

    def exists(self, project_id: str, plan_id: str) -> bool:
        """Whether there is an answer of this id, of whatever kind."""
        row = self._session.get(StoredPlan, plan_id)
        return row is not None and row.project_id == project_id

    def content(self, project_id: str, plan_id: str, kinds: Kinds = PLANS) -> Content | None:
        """The bytes of an answer of some kind."""
        row = self._first(_OF_ID, project_id=project_id, plan_id=plan_id)
        return Content(*tuple(row)[:-1]) if row is not None and row.kind in kinds else None

    def equal(self, project_id: str, content_key: str) -> Content | None:
        """The answer to an equal question under the same calibration."""
        row = self._first(_OF_KEY, project_id=project_id, content_key=content_key)
        return None if row is None else Content(*tuple(row)[:-1])

    def page(
        self,
        project_id: str,
        kind: str,
        *,
        status: str | None,
        model: str | None,
        created: Created = ALWAYS,
        after: str | None,
        size: int,
    ) -> Page[StoredPlan]:
        """Answers of a kind, newest first."""
        query = select(StoredPlan).where(StoredPlan.project_id == project_id, StoredPlan.kind == kind)
        query = created.of(query, StoredPlan.created_at)
        if status is not None:
            query = query.where(StoredPlan.status == status)
        if model is not None:
            query = query.where(StoredPlan.model == model)
        return self._page(query, StoredPlan.id, after, size)

    def of(self, project_id: str, plan_ids: Sequence[str]) -> Sequence[StoredPlan]:
        """Several answers, in no order."""
        own = (StoredPlan.project_id == project_id, StoredPlan.id.in_(plan_ids))
        return self._session.scalars(select(StoredPlan).where(*own)).all()
