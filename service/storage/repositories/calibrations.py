"""Versions of the constants: only ever added to."""

from sqlalchemy import bindparam, or_, select

from service.storage.repositories.base import ALWAYS, Created, Page, Repository
from service.storage.tables import CalibrationVersion

_ROW = CalibrationVersion.__table__.c
_NEWEST = select(_ROW.id).where(_ROW.project_id == bindparam("project_id")).order_by(_ROW.id.desc()).limit(1)


class Calibrations(Repository):
    """Of a project, and those that this installation brought."""

    def add(self, version: CalibrationVersion) -> None:
        """Keep a version; it is the project's current one from now on."""
        self._session.add(version)
        self._session.flush()

    def get(self, project_id: str, calibration_id: str) -> CalibrationVersion | None:
        """The version of an id."""
        row = self._session.get(CalibrationVersion, calibration_id)
        return row if row is not None and row.project_id in {None, project_id} else None

    def shipped(self, content_sha256: str) -> str | None:
        """Id of the version of this content that an installation brought."""
        own = (CalibrationVersion.project_id.is_(None), CalibrationVersion.content_sha256 == content_sha256)
        return self._session.scalar(select(CalibrationVersion.id).where(*own).order_by(CalibrationVersion.id).limit(1))

    def newest(self, project_id: str) -> str | None:
        """Id of the version that the project added last."""
        row = self._first(_NEWEST, project_id=project_id)
        return None if row is None else str(row.id)

    def page(
        self, project_id: str, *, created: Created = ALWAYS, after: str | None, size: int
    ) -> Page[CalibrationVersion]:
        """Versions, newest first."""
        mine = or_(CalibrationVersion.project_id == project_id, CalibrationVersion.project_id.is_(None))
        query = created.of(select(CalibrationVersion).where(mine), CalibrationVersion.created_at)
        return self._page(query, CalibrationVersion.id, after, size)
