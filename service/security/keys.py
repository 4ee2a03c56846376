"""API keys of projects: made, listed, revoked, rotated; each change is in the audit by the same transaction."""

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Final

from pydantic import BaseModel, ConfigDict

from service.errors import Conflict, NotFound
from service.identifiers import new_id
from service.security import tokens
from service.security.access import SCOPES, Scope
from service.storage.repositories import Repositories
from service.storage.repositories.access import ShownKey
from service.storage.tables import ApiKey, AuditEntry, Project, now

OPERATOR: Final = "operator"
"""Whoever runs the command on the service's machine."""


class KeyInfo(BaseModel):
    """A key without its secret."""

    model_config = ConfigDict(frozen=True)

    id: str
    project: str
    name: str
    scopes: tuple[str, ...]
    state: str
    requests_per_minute: int | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    good_until: datetime | None
    """What of both comes first; None: for ever."""
    replaces: str | None


class NewKey(KeyInfo):
    """A key with its text, which is shown this once."""

    token: str


def state_of(key: ApiKey | ShownKey, at: datetime) -> str:
    """good, revoked or expired."""
    if key.revoked_at is not None and key.revoked_at <= at:
        return "revoked"
    return "expired" if key.expires_at is not None and key.expires_at <= at else "good"


def create(
    work: Repositories,
    project: str,
    name: str,
    scopes: Collection[Scope],
    *,
    expires_at: datetime | None = None,
    requests_per_minute: int | None = None,
    new_project: bool = False,
) -> NewKey:
    """A key for a project.

    Raises:
        NotFound: no project of this name, and none is to be made.
        Conflict: the project is to be made and is there already.
    """
    found = work.projects.named(project)
    if found is None and not new_project:
        known = ", ".join(work.projects.names().values())
        raise NotFound(f"no project is called {project}; there are {known}; --new-project makes one")
    if found is not None and new_project:
        raise Conflict(f"a project is called {project} already")
    if found is None:
        found = Project(id=new_id(), name=project)
        work.projects.add(found)
    made, token = _made(found.id, name, scopes, expires_at, requests_per_minute, None)
    work.api_keys.add(made)
    _note(work, made, "keys.create")
    return NewKey(**dict(_info(made, project)), token=token.text)


def listed(work: Repositories) -> tuple[KeyInfo, ...]:
    """Every key, oldest first."""
    names = work.projects.names()
    return tuple(_info(row, names[row.project_id]) for row in work.api_keys.all())


def revoke(work: Repositories, key_id: str) -> KeyInfo:
    """Let nobody in with a key from now on.

    Raises:
        NotFound: no key of this id.
    """
    row = _found(work, key_id)
    if row.revoked_at is None or row.revoked_at > now():
        row.revoked_at = now()
        _note(work, row, "keys.revoke")
    return _info(row, work.projects.names()[row.project_id])


def rotate(work: Repositories, key_id: str, *, grace: timedelta, expires_at: datetime | None = None) -> NewKey:
    """Another key of the same name and scopes; the old one is good for `grace` yet.

    Raises:
        NotFound: no key of this id.
        Conflict: it lets nobody in any more, so that nothing can take its place.
    """
    row = _found(work, key_id)
    if (state := state_of(row, now())) != "good":
        raise Conflict(f"the key {key_id} is {state}; create a new one")
    scopes = [scope for scope in SCOPES if scope in row.scopes]
    made, token = _made(row.project_id, row.name, scopes, expires_at, row.requests_per_minute, row.id)
    work.api_keys.add(made)
    end = now() + grace
    row.revoked_at = end if row.revoked_at is None else min(row.revoked_at, end)
    _note(work, made, "keys.rotate")
    return NewKey(**dict(_info(made, work.projects.names()[row.project_id])), token=token.text)


def _made(
    project_id: str,
    name: str,
    scopes: Collection[Scope],
    expires_at: datetime | None,
    requests_per_minute: int | None,
    replaces: str | None,
) -> tuple[ApiKey, tokens.Token]:
    token = tokens.make()
    row = ApiKey(
        id=token.id,
        project_id=project_id,
        name=name,
        sha256=token.sha256,
        scopes=[scope for scope in SCOPES if scope in scopes],
        requests_per_minute=requests_per_minute,
        expires_at=expires_at,
        replaces=replaces,
    )
    return row, token


def _found(work: Repositories, key_id: str) -> ApiKey:
    row = work.api_keys.get(key_id)
    if row is None:
        raise NotFound(f"no key has the id {key_id}; meshwright keys list shows them")
    return row


def _info(row: ApiKey, project: str) -> KeyInfo:
    names = ("id", "name", "requests_per_minute", "created_at", "expires_at", "revoked_at", "replaces")
    own = {name: getattr(row, name) for name in names}
    ends = [end for end in (row.expires_at, row.revoked_at) if end is not None]
    good_until = min(ends, default=None)
    state = state_of(row, now())
    return KeyInfo(**own, project=project, scopes=tuple(row.scopes), state=state, good_until=good_until)


def _note(work: Repositories, row: ApiKey, action: str) -> None:
    entry = AuditEntry(
        id=new_id(),
        project_id=row.project_id,
        caller=OPERATOR,
        key_id=None,
        action=action,
        target=f"key {row.id}" + (f" for {row.replaces}" if row.replaces else ""),
        status=0,
    )
    work.audit.add([entry])
