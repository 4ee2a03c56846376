"""Fixtures: each test that asks for `database_url` runs once on SQLite and once on PostgreSQL."""

import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.databases.postgresql import Server, ServerMissing, server

if TYPE_CHECKING:  # the database library is loaded by the tests that need it
    from service.storage.database import Database

Fresh = Callable[[], str]


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[Server]:
    """One server for the tests of this process. Where it is missing: skipped, which fails in CI."""
    try:
        context = server()
        found = context.__enter__()
    except ServerMissing as error:
        pytest.skip(str(error))
    try:
        yield found
    finally:
        context.__exit__(None, None, None)


@pytest.fixture(scope="session")
def sqlite_databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fresh]:
    from tests.databases import fresh

    with fresh.sqlite(tmp_path_factory.mktemp("sqlite")) as found:
        yield found


@pytest.fixture(scope="session")
def postgresql_databases(postgresql_server: Server) -> Iterator[Fresh]:
    from tests.databases import fresh

    with fresh.postgresql(postgresql_server) as found:
        yield found


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def databases(request: pytest.FixtureRequest) -> Iterator[Fresh]:
    """What `client()` makes its databases with: the tests of a module run on one kind, then on the other."""
    from tests.databases import ambient

    make: Fresh = request.getfixturevalue(f"{request.param}_databases")
    ambient.use(make)
    yield make
    ambient.leave()


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """A fresh database of each kind."""
    make: Any = request.getfixturevalue(f"{request.param}_databases")
    return str(make())


@pytest.fixture(params=["sqlite", "postgresql"])
def database_alone(request: pytest.FixtureRequest) -> str:
    """The same, and nobody else is connected to it: a database of its own, not a schema of one."""
    if request.param == "sqlite":
        make: Any = request.getfixturevalue("sqlite_databases")
        return str(make())
    return own_database(request.getfixturevalue("postgresql_server"))


def own_database(server: Server) -> str:
    """A database of this release on the server, under a name of its own."""
    from sqlalchemy import create_engine, text

    from service.storage import upgrade
    from service.storage.database import Database

    name = f"alone_{uuid.uuid4().hex[:12]}"
    address = server.url("postgres").replace("postgresql:", "postgresql+psycopg:")
    admin = create_engine(address, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    admin.dispose()
    made = Database(server.url(name))
    upgrade.upgrade(made)
    made.close()
    return server.url(name)


@pytest.fixture
def database(database_url: str) -> "Iterator[Database]":
    from service.storage.database import Database

    found = Database(database_url, retry_seconds=5)
    try:
        yield found
    finally:
        found.close()
