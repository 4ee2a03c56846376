"""Whether requests would be worked on: the service, its pool, its database and the migrations, each by itself."""

import asyncio
import time
from collections.abc import Mapping
from typing import Final, NamedTuple

from service.solving.pool import SolverPool
from service.solving.service import Planning
from service.storage import upgrade
from service.storage.database import Database

PATIENCE_SECONDS: Final = 2.0
KEPT_SECONDS: Final = 0.5
"""Anybody may ask, so that the database is not asked more often than this."""
PROBE_SECONDS: Final = 15.0
"""A real write is tried so often, so that a full disk shows before a request meets it."""


class Seen(NamedTuple):
    """One part: whether it is ready, and why not, or what else there is to say of it."""

    ready: bool
    detail: str | None = None


READY: Final = Seen(True)


class Readiness:
    """Looks, and remembers for a moment what it saw."""

    def __init__(self, database: Database, pool: SolverPool, planning: Planning) -> None:
        """Nothing is looked at yet."""
        self._database, self._pool, self._planning = database, pool, planning
        self._reading: asyncio.Task[str | None] | None = None
        self._read_at = 0.0
        self._probing: asyncio.Task[None] | None = None
        self._probed_at = -PROBE_SECONDS

    async def look(self) -> Mapping[str, Seen]:
        """Everything at once, so that whoever is called at night sees all of it."""
        database, migrations = await self._storage()
        return {
            "service": _unless("the service is ending" if self._planning.closing else None),
            "pool": _unless(None if self._pool.ready else "no solver process is up yet"),
            "database": database,
            "migrations": migrations,
        }

    async def _storage(self) -> tuple[Seen, Seen]:
        if time.monotonic() - self._read_at > KEPT_SECONDS or self._reading is None:
            if self._reading is None or self._reading.done():  # one that hangs is not joined by another
                self._reading = asyncio.create_task(asyncio.to_thread(upgrade.current, self._database))
            self._read_at = time.monotonic()
        done, _ = await asyncio.wait((self._reading,), timeout=PATIENCE_SECONDS)
        if self._database.spoiled is not None:
            return _unknown("it is malformed: meshwright db restore", "is malformed")
        if not done or self._reading.exception() is not None:
            return _unknown("the database does not answer", "does not answer")
        current = self._reading.result()
        if (lacking := upgrade.shortfall(current)) is not None:
            return READY, Seen(False, lacking)
        ahead = f"at migration {current}, ahead of this release ({upgrade.head()})"
        return _unless(await self._writes()), Seen(True, ahead if upgrade.is_ahead(current) else None)

    async def _writes(self) -> str | None:
        """Why nothing can be written. A writer that holds the database for a while leaves it as it was."""
        pause = PROBE_SECONDS if self._database.unwritable is None else KEPT_SECONDS
        if time.monotonic() - self._probed_at > pause and (self._probing is None or self._probing.done()):
            self._probing = asyncio.create_task(asyncio.to_thread(self._database.probe))
            self._probed_at = time.monotonic()
        if self._probing is not None:
            await asyncio.wait((self._probing,), timeout=PATIENCE_SECONDS)
        return None if self._database.unwritable is None else "it takes no writes: it is full or read-only"


def _unless(why: str | None) -> Seen:
    return READY if why is None else Seen(False, why)


def _unknown(why: str, state: str) -> tuple[Seen, Seen]:
    return Seen(False, why), Seen(False, f"not known while the database {state}")
