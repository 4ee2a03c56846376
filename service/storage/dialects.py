"""Where SQLite and PostgreSQL differ: engines, column types, the clock. No other module knows which one it uses."""

import os
import sqlite3
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

from sqlalchemy import (
    JSON,
    URL,
    DateTime,
    Dialect,
    Engine,
    Float,
    Select,
    TypeDecorator,
    create_engine,
    event,
    func,
    make_url,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DatabaseError, OperationalError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.pool import QueuePool
from sqlalchemy.sql.functions import GenericFunction

from cost_models.errors import SpecError
from service.storage import claims

Row = TypeVar("Row")
WRITES: Final = "meshwright_writes"
"""Execution option of connections that will write: SQLite then takes its lock at once instead of failing half-way."""
BUSY_SECONDS: Final = 10.0
"""A writer of SQLite waits so long for another; longer than any transaction of ours."""
CONNECT_SECONDS: Final = 5
ALIVE: Final = {"keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3, "tcp_user_timeout": 10_000}
"""A connection whose other end has vanished without a word is given up after some ten seconds. [s, s, -, ms]"""
STEPS: Final = 10_000
"""Of SQLite's own machine between two looks at the clock: some 0.1 ms."""
EXTRA: Final = 2
"""Connections beside those of the units of work: for the health check and for maintenance."""
DRIVERS: Final = {"sqlite": "sqlite+pysqlite", "postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}

Json: Final = JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


class Instant(TypeDecorator[datetime]):
    """A point in time, always UTC; SQLite stores no zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """As UTC; an instant without a zone is a slip."""
        if value is not None and value.tzinfo is None:
            raise ValueError(f"{value.isoformat()} has no time zone")
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """With its zone."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class epoch_now(GenericFunction[float]):
    """The database's clock, which all replicas share. [seconds since 1970]"""

    type = Float(53)
    inherit_cache = True


@compiles(epoch_now, "sqlite")
def _sqlite_now(*_: Any, **__: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(epoch_now, "postgresql")
def _postgresql_now(*_: Any, **__: Any) -> str:
    return "extract(epoch from clock_timestamp())::double precision"


def unlocked(query: Select[Row], of: Any = None) -> Select[Row]:
    """Rows (`of` a table, where several are joined) that no other transaction is claiming.

    SQLite has one writer at a time and ignores the clause.
    """
    return query.with_for_update(skip_locked=True, of=of)


def snapshots(engine: Engine) -> Engine:
    """The engine for readers: all queries of a transaction see the same instant. SQLite's always do."""
    return (
        engine.execution_options(isolation_level="REPEATABLE READ") if engine.dialect.name == "postgresql" else engine
    )


def quick_check(connection: Connection, deadline: float) -> None:
    """Read an SQLite file through, until an instant of the monotonic clock.

    Raises:
        DatabaseError: it is malformed.
    """
    driver: Any = connection.connection.driver_connection
    driver.set_progress_handler(lambda: time.monotonic() > deadline, STEPS)
    try:
        said = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one()
    except OperationalError as error:
        if "interrupted" not in str(error.orig):
            raise
        return
    finally:
        driver.set_progress_handler(None, STEPS)
    if said != "ok":
        raise DatabaseError("PRAGMA quick_check", None, sqlite3.DatabaseError(f"the file is malformed: {said}"))


def missing_file(url: str) -> Path | None:
    """The file that an address of SQLite names, where it is not there.

    Raises:
        SpecError: the address is none of SQLite's or PostgreSQL's.
    """
    parsed = _parsed(url)
    file = Path(parsed.database or "")
    return file if parsed.get_backend_name() == "sqlite" and not file.exists() else None


def shown(engine: Engine) -> str:
    """Its address, without the password."""
    backend = engine.url.get_backend_name()
    return engine.url.set(drivername=backend, password=None, query={}).render_as_string()


def _parsed(url: str) -> URL:
    try:
        parsed = make_url(url)
    except Exception as error:  # SQLAlchemy's own ArgumentError repeats the address, which may hold a password
        raise SpecError(
            "database_url is no address such as sqlite:///meshwright.db or postgresql://host/name"
        ) from error
    backend = parsed.get_backend_name()
    if backend not in {"sqlite", "postgresql"} and parsed.drivername not in DRIVERS:
        raise SpecError(f"database_url is for {backend}; sqlite and postgresql are supported")
    return parsed.set(drivername=DRIVERS.get(parsed.drivername, parsed.drivername))


def engine_of(url: str, *, connections: int) -> Engine:
    """An engine whose lost connections are replaced.

    Raises:
        SpecError: the address is none of SQLite's or PostgreSQL's, or its driver is missing.
    """
    parsed = _parsed(url)
    if parsed.get_backend_name() == "sqlite":
        return _sqlite(parsed, connections)
    try:
        return create_engine(
            parsed,
            pool_pre_ping=True,
            pool_size=connections,
            max_overflow=EXTRA,
            pool_recycle=1800,
            connect_args={"connect_timeout": CONNECT_SECONDS, **ALIVE},
        )
    except ModuleNotFoundError as error:
        raise SpecError(
            f"database_url is for PostgreSQL but {error.name} is missing: pip install 'meshwright[postgres]'"
        ) from error


def _sqlite(url: Any, connections: int) -> Engine:
    if not url.database or url.database == ":memory:":
        raise SpecError("database_url names no file; SQLite in memory would forget every accepted request")
    folder = Path(url.database).parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SpecError(f"database_url is {url.database}, whose folder cannot be made: {error.strerror}") from error
    if Path(url.database).is_dir():
        raise SpecError(f"database_url is {url.database}, which is a folder")
    try:
        os.close(claims.owned(Path(url.database)))  # SQLite gives its own files the mode of this one
    except OSError as error:
        raise SpecError(f"database_url is {url.database}, which cannot be opened: {error.strerror}") from error
    engine = create_engine(
        url,
        poolclass=QueuePool,
        pool_size=connections,
        max_overflow=EXTRA,
        connect_args={"check_same_thread": False, "timeout": BUSY_SECONDS},
    )

    @event.listens_for(engine, "connect")
    def _connected(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # the driver must not begin transactions by itself: `_begin` does
        cursor = connection.cursor()
        # FULL: an accepted request survives a power cut. WAL: readers and the writer do not wait for each other.
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "temp_store=MEMORY"):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get(WRITES, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


__all__ = ["WRITES", "Instant", "Json", "engine_of", "epoch_now", "func", "unlocked"]
