"""From the Authorization header to a caller, or to a refusal.

Keys are looked up at every request, so that one which is revoked, here or on another replica, is refused at once.
"""

import asyncio
import time
from typing import Final

from service.callers import Caller
from service.errors import StorageUnavailable, Unauthenticated
from service.limits import is_loopback
from service.security import tokens
from service.security.access import SCOPES
from service.security.keys import state_of
from service.security.oidc import Verifier
from service.settings import ServiceSettings
from service.storage.database import Database
from service.storage.repositories import Repositories
from service.storage.tables import now

SCRAPE_SECONDS: Final = 2.0
"""A scrape waits no longer for the database: it is given up by who asks after some ten seconds."""
REMEMBERED_SECONDS: Final = 3600.0
"""Whoever was let in to the metrics is let in so long after, to them alone, while the database is away."""
_REFUSED: Final = "the key is unknown, expired or revoked"


class Authenticator:
    """Knows callers by their key or bearer token."""

    def __init__(self, database: Database, settings: ServiceSettings, verifier: Verifier | None) -> None:
        """Anonymous callers: always (`none`), never (`required`), or on the loopback while no key was made (`auto`)."""
        self._database, self._verifier = database, verifier
        self._open = settings.authentication == "none"
        self._open_until_keyed = settings.authentication == "auto" and verifier is None and is_loopback(settings.host)
        self._scraper: tuple[float, str | None, Caller] | None = None
        """Who was let in to the metrics last, by what header, and when."""

    async def caller(self, authorization: str | None) -> Caller | None:
        """Whom the header names; None: nobody, and nobody may.

        Raises:
            Unauthenticated: it names somebody who is not let in.
        """
        if authorization is None:
            return await self._anonymous()
        kind, _, text = authorization.partition(" ")
        if kind.lower() != "bearer":
            raise Unauthenticated("Authorization is not of the form: Bearer KEY")
        token = tokens.read(text.strip())
        if token is not None:
            return await self._database.reading(lambda work: _of_key(work, token))
        if self._verifier is None:
            raise Unauthenticated(_REFUSED)
        claimed = await self._verifier.verified(text.strip())
        project_id = await self._database.reading(lambda work: _project(work, claimed.project))
        return Caller(
            project_id=project_id,
            name=claimed.name,
            key_id=claimed.subject,
            scopes=claimed.scopes,
            shows="token",
            until=claimed.until,
        )

    async def scraper(self, authorization: str | None) -> Caller | None:
        """The same for the metrics, which are wanted most while the database is away.

        Raises:
            Unauthenticated: as there.
            StorageUnavailable: the database is away, and this header was not the last that was let in.
        """
        asked = asyncio.create_task(self.caller(authorization))
        done, _ = await asyncio.wait((asked,), timeout=SCRAPE_SECONDS)
        if done and not isinstance(asked.exception(), StorageUnavailable):
            if self._scraper is not None and self._scraper[1] == authorization:
                self._scraper = None  # it may be revoked by now
            found = asked.result()
            if found is not None:
                self._scraper = time.monotonic(), authorization, found
            return found
        asked.add_done_callback(lambda task: task.cancelled() or task.exception())  # nobody waits for it any more
        at, header, remembered = self._scraper or (0.0, None, None)
        if remembered is None or header != authorization or time.monotonic() - at > REMEMBERED_SECONDS:
            raise StorageUnavailable("the database is not available: it does not answer a scrape")
        return remembered

    async def _anonymous(self) -> Caller | None:
        if self._open_until_keyed and await self._database.reading(lambda work: work.api_keys.exist()):
            self._open_until_keyed = False
        return Caller() if self._open or self._open_until_keyed else None


def still_let_in(work: Repositories, caller: Caller) -> None:
    """Look again whether a caller who has been waiting would be let in now.

    Raises:
        Unauthenticated: its key was revoked or has expired meanwhile, or its token has.
    """
    row = work.api_keys.shown(caller.key_id) if caller.shows == "key" and caller.key_id else None
    gone = caller.shows == "key" and (row is None or state_of(row, now()) != "good")
    if gone or (caller.until is not None and caller.until <= now()):
        raise Unauthenticated(_REFUSED, caller)


def _of_key(work: Repositories, token: tokens.Token) -> Caller:
    row = work.api_keys.shown(token.id)
    if row is None:
        raise Unauthenticated(_REFUSED)
    found = Caller(
        project_id=row.project_id,
        name=row.name,
        key_id=row.id,
        scopes=frozenset(scope for scope in SCOPES if scope in row.scopes),
        shows="key",
        requests_per_minute=row.requests_per_minute,
    )
    if not token.is_of(row.sha256) or state_of(row, now()) != "good":
        raise Unauthenticated(_REFUSED, found)
    return found


def _project(work: Repositories, name: str) -> str:
    found = work.projects.named(name)
    if found is None:
        raise Unauthenticated("the token names no project of this installation")
    return found.id
