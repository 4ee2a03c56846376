"""What one service process holds while it serves: its database, its pools, its queue."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from typing import Final

import structlog

from service.constants import CalibrationShelf
from service.errors import ServiceError
from service.migrated import Migrated
from service.pulse import Pulse
from service.readiness import Readiness
from service.security.audit import AuditTrail
from service.security.authenticate import Authenticator
from service.security.oidc import verifier
from service.security.rates import Rates
from service.settings import ServiceSettings
from service.solving import worker
from service.solving.acceptance import Acceptance
from service.solving.dispatcher import Dispatcher
from service.solving.pool import SolverPool
from service.solving.service import Planning
from service.solving.spawn import SpawnPool
from service.solving.watch import Watch
from service.storage import upgrade
from service.storage.database import Database
from service.trust import Trust
from service.webhooks.addresses import Allowed
from service.webhooks.sender import Sender

CHECK_SECONDS: Final = 2.0
"""An embedded database is read through for so long before it is served: some 2 GB from a warm cache."""
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Runtime:
    """Made when the application starts, closed when it ends."""

    database: Database
    shelf: CalibrationShelf
    pool: SolverPool
    estimates_pool: SolverPool
    dispatcher: Dispatcher
    planning: Planning
    readiness: Readiness
    sender: Sender | None
    authenticator: Authenticator
    rates: Rates
    audit: AuditTrail
    pulse: Pulse
    trust: Trust
    migrated: Migrated
    beginning: set["asyncio.Task[None]"] = field(default_factory=set)
    """What waits for the database to be upgraded."""

    async def start(self, settings: ServiceSettings) -> None:
        """Bring the database up to date where that is ours to do, then begin to work."""
        await asyncio.to_thread(_prepare, self, settings)
        self.pulse.start()
        await self.audit.start()
        await self.pool.start()
        await self.estimates_pool.start()
        self.beginning.add(asyncio.create_task(self._begin()))

    async def _begin(self) -> None:
        """Take work as soon as the database has all that this release reads."""
        await self.migrated.wait()
        await self.dispatcher.start()
        if self.sender is not None:
            await self.sender.start()

    async def close(self) -> None:
        """Give unfinished work back to the queue and stop. The order matters: first nothing new, last the database."""
        self.database.hurry()
        for task in self.beginning:
            task.cancel()
        await asyncio.gather(*self.beginning, return_exceptions=True)
        await self.dispatcher.close()
        if self.sender is not None:
            await self.sender.close()
        await self.estimates_pool.close()
        await self.audit.close()
        await self.pulse.close()
        await asyncio.to_thread(self.database.close)


def runtime(
    settings: ServiceSettings, *, pool: SolverPool | None = None, estimates_pool: SolverPool | None = None
) -> Runtime:
    """The parts, put together. `pool` and `estimates_pool` replace the solver processes."""
    database = Database(
        settings.database_address,
        connections=settings.database_connections,
        retry_seconds=settings.database_retry_seconds,
    )
    shelf, watch = CalibrationShelf(), Watch()
    pool = pool or _pool(settings)
    # A process of their own: an estimate is not kept waiting by a solve, and one that takes too long can be stopped.
    estimates_pool = estimates_pool or SpawnPool(
        1, min(settings.estimate_timeout_seconds, settings.solve_timeout_seconds), _worker(settings)
    )
    dispatcher = Dispatcher(
        database,
        pool,
        shelf,
        watch,
        lease_seconds=settings.lease_seconds,
        poll_seconds=settings.poll_seconds,
    )
    allowed, sender = Allowed(settings.webhook_networks), None
    if settings.webhook_secret is not None:
        secret = settings.webhook_secret.get_secret_value()
        sender = Sender(database, secret, allowed, poll_seconds=settings.poll_seconds)
    planning = Planning(
        database,
        Acceptance(
            database,
            shelf,
            max_waiting=settings.max_waiting,
            max_of_project=settings.max_waiting_per_project,
            webhooks=None if sender is None else allowed.check_url,
        ),
        dispatcher,
        watch,
        estimates_pool,
        poll_seconds=settings.poll_seconds,
        max_estimates=settings.max_waiting,
        max_watching=settings.max_watching_per_project,
    )
    return Runtime(
        database=database,
        shelf=shelf,
        pool=pool,
        estimates_pool=estimates_pool,
        dispatcher=dispatcher,
        planning=planning,
        readiness=Readiness(database, pool, planning),
        sender=sender,
        authenticator=Authenticator(database, settings, verifier(settings)),
        rates=Rates(),
        audit=AuditTrail(database),
        pulse=Pulse(),
        trust=Trust(database, shelf),
        migrated=Migrated(database, shelf, poll_seconds=settings.poll_seconds),
    )


def _pool(settings: ServiceSettings) -> SolverPool:
    if settings.solver_pool.startswith("dask://"):
        from service.solving.dask_pool import DaskPool

        return DaskPool(settings.solver_pool, settings.solve_timeout_seconds)
    return SpawnPool(settings.solver_processes, settings.solve_timeout_seconds, _worker(settings))


def _worker(settings: ServiceSettings) -> Callable[[Connection], None]:
    """What a solver process runs."""
    return partial(worker.main, log=(settings.log_level, settings.log_format))


def _prepare(parts: Runtime, settings: ServiceSettings) -> None:
    """Migrate and store our calibration; a database that is away does not keep the service from starting."""
    embedded = settings.database_url.startswith("sqlite")
    try:
        if not parts.database.claim():
            _log.warning("another service uses this SQLite database; take PostgreSQL for two")
    except OSError as error:
        _log.warning("nothing can be written beside the database", error=error.strerror)
    try:
        parts.database.check(CHECK_SECONDS)
        if settings.database_upgrade == "always" or (settings.database_upgrade == "auto" and embedded):
            upgrade.upgrade(parts.database)
        parts.migrated.look()
    except ServiceError as error:
        _log.error("the database is not ready", error=str(error))
