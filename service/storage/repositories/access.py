"""Projects, their API keys, and what was done with them."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import bindparam, insert, or_, select

from service.storage.repositories.base import ALWAYS, Created, Page, Repository
from service.storage.tables import ApiKey, AuditEntry, Project


class ShownKey(NamedTuple):
    """What a request with a key is judged by."""

    id: str
    project_id: str
    name: str
    sha256: str
    scopes: list[str]
    requests_per_minute: int | None
    expires_at: datetime | None
    revoked_at: datetime | None


_KEY = ApiKey.__table__.c
_SHOWN = select(*(_KEY[name] for name in ShownKey._fields)).where(_KEY.id == bindparam("key_id"))


class Projects(Repository):
    """Tenants."""

    def named(self, name: str) -> Project | None:
        """The project of a name."""
        return self._session.scalar(select(Project).where(Project.name == name))

    def names(self) -> dict[str, str]:
        """Names by id."""
        return {row.id: row.name for row in self._session.scalars(select(Project).order_by(Project.name))}

    def several(self) -> bool:
        """Whether there is more than one."""
        return len(self._session.scalars(select(Project.id).limit(2)).all()) > 1

    def one_by_one(self, project_id: str) -> None:
        """Let transactions that ask this of a project go on one after the other; others do not wait."""
        self._session.execute(select(Project.id).where(Project.id == project_id).with_for_update(key_share=True))

    def add(self, project: Project) -> None:
        """A new one."""
        self._session.add(project)
        self._session.flush()


class ApiKeys(Repository):
    """Keys of all projects: whoever shows one does not say of which."""

    def shown(self, key_id: str) -> ShownKey | None:
        """The key of an id as every request asks for it, whether it is good or not."""
        row = self._first(_SHOWN, key_id=key_id)
        return None if row is None else ShownKey(*tuple(row))

    def get(self, key_id: str) -> ApiKey | None:
        """The key of an id, to be changed."""
        return self._session.get(ApiKey, key_id)

    def exist(self) -> bool:
        """Whether a key was ever made; one that was revoked counts, so that nobody gets in by its end."""
        return self._session.scalar(select(ApiKey.id).limit(1)) is not None

    def good_exist(self, at: datetime) -> bool:
        """Whether a key could be used at an instant."""
        good = (ApiKey.revoked_at.is_(None), or_(ApiKey.expires_at.is_(None), ApiKey.expires_at > at))
        return self._session.scalar(select(ApiKey.id).where(*good).limit(1)) is not None

    def all(self) -> Sequence[ApiKey]:
        """Every key, oldest first."""
        return self._session.scalars(select(ApiKey).order_by(ApiKey.created_at, ApiKey.id)).all()

    def add(self, key: ApiKey) -> None:
        """A new one."""
        self._session.add(key)
        self._session.flush()


class Audit(Repository):
    """Entries are only added."""

    def add(self, entries: Sequence[AuditEntry]) -> None:
        """Many at once. One that is there already (the transaction is repeated) is an error, which repeats it whole."""
        names = [column.key for column in AuditEntry.__table__.columns]
        self._session.execute(insert(AuditEntry), [{name: getattr(row, name) for name in names} for row in entries])

    def page(
        self,
        project_id: str,
        *,
        caller: str | None = None,
        action: str | None = None,
        status: int | None = None,
        created: Created = ALWAYS,
        after: str | None,
        size: int,
    ) -> Page[AuditEntry]:
        """Entries, newest first."""
        query = created.of(select(AuditEntry).where(AuditEntry.project_id == project_id), AuditEntry.created_at)
        for column, wanted in ((AuditEntry.caller, caller), (AuditEntry.action, action), (AuditEntry.status, status)):
            if wanted is not None:
                query = query.where(column == wanted)
        return self._page(query, AuditEntry.id, after, size)
