"""The record of who changed what, and of who was refused: gathered in memory, written together.

A request does not wait for it. Refusals of one caller for one reason within a pause are one entry with their number, so
that nobody fills the record by asking.
"""

import asyncio
from contextlib import suppress
from typing import Final, NamedTuple

import structlog

from service.callers import DEFAULT_PROJECT, Caller
from service.errors import Conflict, ServiceError
from service.identifiers import new_id
from service.redaction import strike
from service.storage.database import Database
from service.storage.tables import AuditEntry

PAUSE_SECONDS: Final = 0.5
"""A process that is killed loses the entries of this long; the log has them."""
MOST_WAITING: Final = 10_000
"""Entries kept while the database is away; later ones are in the log alone."""
MOST_REFUSED: Final = 100
"""Entries of refusals within a pause; later ones are in the log alone."""
NOBODY: Final = Caller(project_id=DEFAULT_PROJECT, name="unknown", scopes=frozenset())
"""Whoever shows no key that this installation knows; seen by the admins of its first project."""
_LONGEST: Final = 2000
_log = structlog.get_logger(__name__)


class Asked(NamedTuple):
    """A request: what it asked for, from where, and what it was answered."""

    action: str
    target: str
    status: int
    request_id: str | None
    address: str | None


class AuditTrail:
    """Entries on their way to the database."""

    def __init__(self, database: Database) -> None:
        """Nothing is written before `start`."""
        self._database = database
        self._waiting: list[AuditEntry] = []
        self._refused: dict[tuple[object, ...], AuditEntry] = {}
        self._loop: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to write."""
        self._loop = asyncio.create_task(self._writing())

    def note(self, caller: Caller, asked: Asked) -> None:
        """A request that changes something was answered."""
        if len(self._waiting) >= MOST_WAITING:
            _log.error("the audit cannot keep up; this entry is in the log alone")
            return
        self._waiting.append(_entry(caller, asked))

    def refused(self, caller: Caller | None, asked: Asked) -> None:
        """A request was turned away before any work; `caller`: whose key it showed, good or not."""
        caller = caller or NOBODY
        alike = (caller.project_id, caller.key_id, asked.action, asked.address)
        if (entry := self._refused.get(alike)) is not None:
            entry.times += 1
        elif len(self._refused) < MOST_REFUSED and len(self._waiting) < MOST_WAITING:
            self._refused[alike] = _entry(caller, asked)

    async def close(self) -> None:
        """Write what is left."""
        if self._loop is not None:
            self._loop.cancel()
            with suppress(asyncio.CancelledError):
                await self._loop
        await self._write()

    async def _writing(self) -> None:
        while True:
            await asyncio.sleep(PAUSE_SECONDS)
            await self._write()

    async def _write(self) -> None:
        self._waiting += self._refused.values()
        self._refused.clear()
        entries = self._waiting[:]
        if not entries:
            return
        try:
            await self._database.writing(lambda work: work.audit.add(entries))
        except Conflict:
            pass  # they are there: the answer to the commit was lost, and it was repeated
        except ServiceError as error:
            _log.error("the audit waits for the database", entries=len(entries), error=str(error))
            return
        except Exception as error:  # the loop goes on whatever happens
            _log.error("the audit cannot be written", entries=len(entries), error=type(error).__name__)
            return
        del self._waiting[: len(entries)]


def _entry(caller: Caller, asked: Asked) -> AuditEntry:
    return AuditEntry(
        id=new_id(),
        project_id=caller.project_id,
        caller=caller.name,
        key_id=caller.key_id,
        action=asked.action,
        target=strike(asked.target[:_LONGEST].replace("\x00", "")),
        status=asked.status,
        request_id=None if asked.request_id is None else strike(asked.request_id),
        address=asked.address,
    )
