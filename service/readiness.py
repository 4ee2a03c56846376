"""Whether requests would be worked on: the service, its pool, its database and the migrations, each by itself."""

import asyncio
import time
from collections.abc import Mapping
from typing import Final

from service.solving.pool import SolverPool
from service.solving.service import Planning
from service.storage import upgrade
from service.storage.database import Database

PATIENCE_SECONDS: Final = 2.0
KEPT_SECONDS: Final = 0.5
"""Anybody may ask, so that the database is not asked more often than this."""
PROBE_SECONDS: Final = 15.0
"""A real write is tried so often, so that a full disk shows before a request meets it."""
Reasons = Mapping[str, str | None]
"""By what was looked at: why it is not ready; None: it is."""


class Readiness:
    """Looks, and remembers for a moment what it saw."""

    def __init__(self, database: Database, pool: SolverPool, planning: Planning) -> None:
        """Nothing is looked at yet."""
        self._database, self._pool, self._planning = database, pool, planning
        self._reading: asyncio.Task[str | None] | None = None
        self._read_at = 0.0
        self._probing: asyncio.Task[None] | None = None
        self._probed_at = -PROBE_SECONDS

    async def look(self) -> Reasons:
        """Everything at once, so that whoever is called at night sees all of it."""
        database, migrations = await self._storage()
        return {
            "service": "the service is ending" if self._planning.closing else None,
            "pool": None if self._pool.ready else "no solver process is up yet",
            "database": database,
            "migrations": migrations,
        }

    async def _storage(self) -> tuple[str | None, str | None]:
        if time.monotonic() - self._read_at > KEPT_SECONDS or self._reading is None:
            if self._reading is None or self._reading.done():  # one that hangs is not joined by another
                self._reading = asyncio.create_task(asyncio.to_thread(upgrade.current, self._database))
            self._read_at = time.monotonic()
        done, _ = await asyncio.wait((self._reading,), timeout=PATIENCE_SECONDS)
        if self._database.spoiled is not None:
            return "it is malformed: meshwright db restore", "not known while the database is malformed"
        if not done or self._reading.exception() is not None:
            return "the database does not answer", "not known while the database does not answer"
        current = self._reading.result()
        if current != upgrade.head():
            return None, f"at migration {current}, this release needs {upgrade.head()}: meshwright db upgrade"
        return await self._writes(), None

    async def _writes(self) -> str | None:
        """Why nothing can be written. A writer that holds the database for a while leaves it as it was."""
        pause = PROBE_SECONDS if self._database.unwritable is None else KEPT_SECONDS
        if time.monotonic() - self._probed_at > pause and (self._probing is None or self._probing.done()):
            self._probing = asyncio.create_task(asyncio.to_thread(self._database.probe))
            self._probed_at = time.monotonic()
        if self._probing is not None:
            await asyncio.wait((self._probing,), timeout=PATIENCE_SECONDS)
        return None if self._database.unwritable is None else "it takes no writes: it is full or read-only"
