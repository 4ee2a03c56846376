"""The record of who changed what: gathered in memory, written together, so that a request does not wait for it."""

import asyncio
from contextlib import suppress
from typing import Final

import structlog

from service.callers import Caller
from service.errors import Conflict, ServiceError
from service.identifiers import new_id
from service.storage.database import Database
from service.storage.tables import AuditEntry

PAUSE_SECONDS: Final = 0.5
"""A process that is killed loses the entries of this long; the log has them."""
MOST_WAITING: Final = 10_000
"""Entries kept while the database is away; later ones are in the log alone."""
_LONGEST: Final = 2000
_log = structlog.get_logger(__name__)


class AuditTrail:
    """Entries on their way to the database."""

    def __init__(self, database: Database) -> None:
        """Nothing is written before `start`."""
        self._database = database
        self._waiting: list[AuditEntry] = []
        self._loop: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to write."""
        self._loop = asyncio.create_task(self._writing())

    def note(self, caller: Caller, action: str, target: str, status: int, request_id: str | None) -> None:
        """A request that changes something was answered."""
        _log.info("audit", caller=caller.name, key_id=caller.key_id, action=action, target=target, status=status)
        if len(self._waiting) >= MOST_WAITING:
            _log.error("the audit cannot keep up; this entry is in the log alone")
            return
        self._waiting.append(
            AuditEntry(
                id=new_id(),
                project_id=caller.project_id,
                caller=caller.name,
                key_id=caller.key_id,
                action=action,
                target=target[:_LONGEST].replace("\x00", ""),
                status=status,
                request_id=request_id,
            )
        )

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
