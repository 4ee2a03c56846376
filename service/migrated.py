"""Whether the database has what this release needs. Until somebody upgrades it, nothing is answered from it."""

import asyncio

import structlog

from service.constants import CalibrationShelf
from service.errors import NotUpgraded, ServiceError
from service.storage import upgrade
from service.storage.database import Database

_log = structlog.get_logger(__name__)


class Migrated:
    """Looks until the database lacks nothing, and stores our calibration then."""

    def __init__(self, database: Database, shelf: CalibrationShelf, *, poll_seconds: float) -> None:
        """Nothing is looked at yet."""
        self._database, self._shelf, self._poll = database, shelf, poll_seconds
        self.lacking: str | None = None
        """What it lacks, as far as is known: while it is away, nothing is known."""
        self._done = False

    def look(self) -> None:
        """Look now.

        Raises:
            ServiceError: the database is away, or takes no writes.
        """
        lacking, before = upgrade.shortfall(upgrade.current(self._database)), self.lacking
        if lacking is not None and lacking != before:
            _log.error("the database is not upgraded: nothing is served", migrations=lacking)
        self.lacking = lacking
        if lacking is None:
            self._database.write(self._shelf.register_own)
            self._done = True

    async def wait(self) -> None:
        """Return when it lacks nothing."""
        while not self._done:
            await asyncio.sleep(self._poll)
            try:
                await asyncio.to_thread(self.look)
            except ServiceError:
                pass  # it is away: readiness and the log of requests say so
            except Exception as error:  # it is looked at again whatever happens: requests wait for it
                _log.error("the database cannot be looked at", error=str(error)[:200])

    def check(self) -> None:
        """Let nobody read or write rows whose columns are not there.

        Raises:
            NotUpgraded: it lacks migrations.
        """
        if self.lacking is not None:
            raise NotUpgraded(f"the database is {self.lacking}")
