"""Versions of the constants: only ever added to."""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import bindparam, or_, select

from service.storage.repositories.base import ALWAYS, Created, Page, Repository
from service.storage.tables import Activation, CalibrationVersion


class InForce(NamedTuple):
    """What a project has decided to be answered with."""

    calibration_id: str | None
    """None: whatever the installation brings."""
    held: bool


_ROW = Activation.__table__.c
_IN_FORCE = (
    select(_ROW.calibration_id, _ROW.held)
    .where(_ROW.project_id == bindparam("project_id"))
    .order_by(_ROW.id.desc())
    .limit(1)
)


class Calibrations(Repository):
    """Of a project, and those that this installation brought."""

    def add(self, version: CalibrationVersion) -> None:
        """Keep a version. It answers nothing before it is activated."""
        self._session.add(version)
        self._session.flush()

    def activate(self, activation: Activation) -> None:
        """Answer with a version from now on."""
        self._session.add(activation)
        self._session.flush()

    def get(self, project_id: str, calibration_id: str) -> CalibrationVersion | None:
        """The version of an id."""
        row = self._session.get(CalibrationVersion, calibration_id)
        return row if row is not None and row.project_id in {None, project_id} else None

    def shipped(self, content_sha256: str) -> str | None:
        """Id of the version of this content that an installation brought."""
        own = (CalibrationVersion.project_id.is_(None), CalibrationVersion.content_sha256 == content_sha256)
        return self._session.scalar(select(CalibrationVersion.id).where(*own).order_by(CalibrationVersion.id).limit(1))

    def in_force(self, project_id: str) -> InForce:
        """What the project has activated last."""
        row = self._first(_IN_FORCE, project_id=project_id)
        return InForce(None, held=False) if row is None else InForce(row.calibration_id, bool(row.held))

    def learned_last(self, project_id: str) -> CalibrationVersion | None:
        """The newest version that was made from the project's measurements."""
        own = (CalibrationVersion.project_id == project_id, CalibrationVersion.evidence.is_not(None))
        query = select(CalibrationVersion).where(*own).order_by(CalibrationVersion.id.desc()).limit(1)
        return self._session.scalar(query)

    def activations(self, project_id: str, calibration_id: str | None, most: int) -> Sequence[Activation]:
        """When a version (None: whatever the installation brings) was put in force, newest first."""
        own = (Activation.project_id == project_id, Activation.calibration_id == calibration_id)
        return self._session.scalars(select(Activation).where(*own).order_by(Activation.id.desc()).limit(most)).all()

    def page(
        self, project_id: str, *, created: Created = ALWAYS, after: str | None, size: int
    ) -> Page[CalibrationVersion]:
        """Versions, newest first."""
        mine = or_(CalibrationVersion.project_id == project_id, CalibrationVersion.project_id.is_(None))
        query = created.of(select(CalibrationVersion).where(mine), CalibrationVersion.created_at)
        return self._page(query, CalibrationVersion.id, after, size)
