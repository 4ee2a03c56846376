"""Models, clusters and devices that a project has named."""

from collections.abc import Sequence
from typing import Any, Literal

from sqlalchemy import bindparam, delete, select

from service.storage.repositories.base import Repository
from service.storage.tables import Registration

Kind = Literal["model", "cluster", "device"]
_ROW = Registration.__table__.c
_CONTENT = select(_ROW.content).where(
    _ROW.project_id == bindparam("project_id"), _ROW.kind == bindparam("kind"), _ROW.name == bindparam("name")
)


class Registrations(Repository):
    """What names stand for."""

    def add(self, registration: Registration) -> None:
        """Keep one."""
        self._session.add(registration)
        self._session.flush()

    def content(self, project_id: str, kind: Kind, name: str) -> dict[str, Any] | None:
        """What a name stands for, as every request asks."""
        row = self._first(_CONTENT, project_id=project_id, kind=kind, name=name)
        return None if row is None else dict(row.content)

    def get(self, project_id: str, kind: Kind, name: str) -> Registration | None:
        """The registration of a name."""
        return self._session.get(Registration, (project_id, kind, name))

    def remove(self, project_id: str, kind: Kind, name: str) -> bool:
        """Forget a name; whether there was one."""
        own = (Registration.project_id == project_id, Registration.kind == kind, Registration.name == name)
        return self._session.execute(delete(Registration).where(*own).returning(Registration.name)).first() is not None

    def names(self, project_id: str, kind: Kind) -> Sequence[str]:
        """All names; what they stand for may be large."""
        own = (Registration.project_id == project_id, Registration.kind == kind)
        return self._session.scalars(select(Registration.name).where(*own).order_by(Registration.name)).all()

    def of(self, project_id: str, kind: Kind, names: Sequence[str]) -> dict[str, Registration]:
        """Some, by their names."""
        own = (Registration.project_id == project_id, Registration.kind == kind, Registration.name.in_(names))
        return {row.name: row for row in self._session.scalars(select(Registration).where(*own))}
