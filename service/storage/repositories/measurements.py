"""Measurements of plans: only ever added to."""

from collections.abc import Sequence

from sqlalchemy import func, select

from service.storage.repositories.base import ALWAYS, Created, Page, Repository
from service.storage.tables import StoredMeasurement


class Measurements(Repository):
    """What runs of plans measured."""

    def add(self, measurement: StoredMeasurement) -> None:
        """Keep one."""
        self._session.add(measurement)
        self._session.flush()

    def get(self, project_id: str, measurement_id: str) -> StoredMeasurement | None:
        """The measurement of an id."""
        row = self._session.get(StoredMeasurement, measurement_id)
        return row if row is not None and row.project_id == project_id else None

    def of(self, project_id: str, plan_ids: Sequence[str]) -> Sequence[StoredMeasurement]:
        """All measurements of some plans, oldest first."""
        own = (StoredMeasurement.project_id == project_id, StoredMeasurement.plan_id.in_(plan_ids))
        return self._session.scalars(select(StoredMeasurement).where(*own).order_by(StoredMeasurement.id)).all()

    def newest(self, project_id: str, most: int, *, created: Created = ALWAYS) -> Sequence[StoredMeasurement]:
        """The newest ones, newest first."""
        query = select(StoredMeasurement).where(StoredMeasurement.project_id == project_id)
        query = created.of(query, StoredMeasurement.created_at).order_by(StoredMeasurement.id.desc()).limit(most)
        return self._session.scalars(query).all()

    def projects(self) -> Sequence[str]:
        """Those that have any."""
        return self._session.scalars(select(StoredMeasurement.project_id).distinct()).all()

    def count(self, project_id: str, outcome: str, *, after: str) -> int:
        """How many of an outcome came after an id; ids sort by time, whatever they are of."""
        own = (StoredMeasurement.project_id == project_id, StoredMeasurement.outcome == outcome)
        query = select(func.count()).select_from(StoredMeasurement).where(*own, StoredMeasurement.id > after)
        return self._session.scalar(query) or 0

    def some(self, project_id: str, ids: Sequence[str]) -> Sequence[StoredMeasurement]:
        """Several, by their ids."""
        own = (StoredMeasurement.project_id == project_id, StoredMeasurement.id.in_(ids))
        return self._session.scalars(select(StoredMeasurement).where(*own).order_by(StoredMeasurement.id)).all()

    def page(
        self,
        project_id: str,
        *,
        plan_id: str | None,
        outcome: str | None,
        created: Created = ALWAYS,
        after: str | None,
        size: int,
    ) -> Page[StoredMeasurement]:
        """Measurements, newest first."""
        query = select(StoredMeasurement).where(StoredMeasurement.project_id == project_id)
        query = created.of(query, StoredMeasurement.created_at)
        if plan_id is not None:
            query = query.where(StoredMeasurement.plan_id == plan_id)
        if outcome is not None:
            query = query.where(StoredMeasurement.outcome == outcome)
        return self._page(query, StoredMeasurement.id, after, size)
