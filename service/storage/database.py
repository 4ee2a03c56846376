"""Units of work: one transaction each, repeated when the database was away or another won a race."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, Final, TypeVar

import structlog
from sqlalchemy import Engine, event, inspect
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session, sessionmaker

from service import tracing
from service.errors import Conflict, StorageUnavailable, Unstorable
from service.storage.claims import Claim, file_of
from service.storage.dialects import WRITES, engine_of, quick_check, snapshots
from service.storage.guards import REFUSAL
from service.storage.probe import probe
from service.storage.repositories import Repositories
from service.storage.repositories.base import SNAPSHOT
from service.storage.together import Together

T = TypeVar("T")
Work = Callable[[Repositories], T]
"""What is done in one transaction. It may run again from the start, so that it keeps nothing from an earlier try."""
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 1.0
MOST_RACES: Final = 5
_LASTING: Final = (
    *("readonly", "read-only", "full", "no space left", "disk i/o", "malformed", "no such table", "unable to open"),
)
"""What databases say of a state that waiting does not change."""
_TRANSIENT: Final = ("40001", "40P01")
"""SQLSTATE of serialization failures and deadlocks."""
_SPOILED: Final = ("malformed", "not a database")
_SPOILED_STATES: Final = ("XX001", "XX002")
"""SQLSTATE of spoiled data and indexes."""
_KEYS: Final = ("23505", "23503")
"""Of a key that is there already, and of one that is there no longer."""
ADDED: Final = "meshwright_added"
"""Key of `Session.info`: a row that the transaction adds, by its class and primary key."""
_log = structlog.get_logger(__name__)


class Database:
    """The database of one process. `read` and `write` block; `reading` and `writing` are for the event loop."""

    def __init__(self, url: str, *, connections: int = 4, retry_seconds: float = 10.0) -> None:
        """Nothing is connected yet. A lost database is waited for, `retry_seconds` long."""
        self._retry_seconds = retry_seconds
        self.engine: Engine = engine_of(url, connections=connections)
        self._reading = sessionmaker(snapshots(self.engine), expire_on_commit=False)
        self._writing = sessionmaker(self.engine.execution_options(**{WRITES: True}), expire_on_commit=False)
        event.listen(self._writing, "pending_to_persistent", _note)
        self._threads = ThreadPoolExecutor(max_workers=connections, thread_name_prefix="database")
        self._together = Together(self._read, connections)
        self._closed = False
        self.unwritable: str | None = None
        """Why the last write failed, until `probe` finds that writes are taken again."""
        self.spoiled: str | None = None
        """What was said of a file whose content is no database any more. Nothing mends that but a backup."""
        self._claim: Claim | None = None

    def claim(self) -> bool:
        """Say that a service uses an embedded database, until `close`; whether it is the only one.

        Raises:
            OSError: nothing can be written beside the database.
        """
        file = file_of(self.engine)
        self._claim = self._claim or (None if file is None else Claim(file))
        return self._claim is None or self._claim.alone

    def check(self, seconds: float) -> None:
        """Look whether an embedded database is whole, as far as one gets in so long; `spoiled` says it."""
        if file_of(self.engine) is not None:
            self.read(lambda work: quick_check(work.session.connection(), time.monotonic() + seconds))

    def read(self, work: Work[T]) -> T:
        """Do `work`, which changes nothing.

        Raises:
            StorageUnavailable: the database is away, or refuses.
        """
        return self._read(work, time.monotonic())

    def write(self, work: Work[T]) -> T:
        """Do `work` and commit, all of it or nothing.

        Raises:
            StorageUnavailable: the database is away, full, or cannot be written.
            Conflict: another transaction wins every time.
        """
        try:
            return self._repeated(self._writing, work, time.monotonic())
        except StorageUnavailable as error:
            self.unwritable = str(error)
            raise

    def probe(self) -> None:
        """Find out whether writes are taken; `unwritable` says it."""
        try:
            self.write(probe)
        except Exception as error:  # whatever it is: nothing was written
            self.unwritable = str(error)
            _log.error("the database takes no writes", reason=str(error)[:200])
        else:
            self.unwritable = None

    async def reading(self, work: Work[T]) -> T:
        """As `read`, in a thread, with the other reads of this instant."""
        with tracing.inner("store.read"):
            return await self._together.read(work)

    async def writing(self, work: Work[T]) -> T:
        """As `write`, in a thread."""
        loop = asyncio.get_running_loop()
        with tracing.inner("store.write"):  # and with the id of the request, for the log
            return await loop.run_in_executor(self._threads, copy_context().run, self.write, work)

    def hurry(self) -> None:
        """The service is ending: a database that is away is waited for no longer."""
        self._closed = True

    def close(self) -> None:
        """Give up waiting, finish what is being done, disconnect."""
        self._closed = True
        self._together.close()
        self._threads.shutdown(wait=True, cancel_futures=True)
        self.engine.dispose()
        if self._claim is not None:
            self._claim.release()

    def _read(self, work: Work[T], asked: float) -> T:
        return self._repeated(self._reading, work, asked)

    def _repeated(self, sessions: "sessionmaker[Session]", work: Work[T], asked: float) -> T:
        deadline, pause, races = asked + self._retry_seconds, FIRST_PAUSE, 0
        unheard: tuple[Any, T] | None = None
        while True:
            try:
                with sessions.begin() as session:
                    if sessions is self._reading:
                        session.info[SNAPSHOT] = {}
                    if unheard is not None and unheard[0] and session.get(*unheard[0]) is not None:
                        return unheard[1]  # the commit was done, only its answer was lost
                    unheard = None
                    result = work(Repositories(session))
                    session.flush()
                    session.expunge_all()  # rows stay readable whatever is heard of the commit
                    unheard = session.info.get(ADDED), result
            except (DataError, UnicodeEncodeError) as error:
                raise Unstorable("a text holds characters that cannot be stored, such as NUL") from error
            except (DBAPIError, PoolTimeout) as error:
                self.spoiled = self.spoiled or _spoiled(error)
                if REFUSAL in str(error):
                    raise Conflict(str(getattr(error, "orig", error)).partition("\n")[0]) from error
                if isinstance(error, IntegrityError):
                    # Two transactions made the same thing. The next try finds what the other made.
                    races += 1
                    if not _raced(error):
                        raise
                    if races >= MOST_RACES:
                        raise Conflict("another request keeps changing the same thing") from error
                    continue
                if not _passes(error) or self._closed or time.monotonic() + pause > deadline:
                    raise StorageUnavailable(_reason(error)) from error
                _log.warning("database is away; trying again", error=_reason(error))
                time.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
            except SQLAlchemyError as error:
                raise StorageUnavailable(_reason(error)) from error
            else:
                return result


def _note(session: Session, row: object) -> None:
    """Remember the first row that a transaction adds."""
    if ADDED not in session.info:
        session.info[ADDED] = type(row), inspect(row, raiseerr=True).identity


def _spoiled(error: DBAPIError | PoolTimeout) -> str | None:
    """What is said where that which is stored cannot be read any more."""
    if isinstance(error, PoolTimeout):
        return None
    text = str(error.orig).lower()
    found = getattr(error.orig, "sqlstate", None) in _SPOILED_STATES or any(sign in text for sign in _SPOILED)
    return _reason(error) if found else None


def _raced(error: IntegrityError) -> bool:
    """Whether a key was there already, or there no longer; anything else is a bug."""
    return getattr(error.orig, "sqlstate", None) in _KEYS or "UNIQUE constraint" in str(error.orig)


def _passes(error: DBAPIError | PoolTimeout) -> bool:
    """Whether another try, a little later, may succeed."""
    if isinstance(error, PoolTimeout) or error.connection_invalidated:
        return True
    if getattr(error.orig, "sqlstate", None) in _TRANSIENT:
        return True
    text = str(error.orig).lower()
    return isinstance(error, OperationalError | InterfaceError) and not any(sign in text for sign in _LASTING)


def _reason(error: SQLAlchemyError) -> str:
    """What the database said, in its first line: without statements and their values."""
    said = str(error.orig).partition("\n")[0] if isinstance(error, DBAPIError) else type(error).__name__
    return f"the database is not available: {said[:200]}"
