"""Fresh, upgraded databases, copied from one that was upgraded once."""

import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import create_engine, text

from service.storage import upgrade
from service.storage.database import Database
from tests.databases.postgresql import Server

Fresh = Callable[[], str]
"""Makes a database; its address."""


@contextmanager
def sqlite(folder: Path) -> Iterator[Fresh]:
    """Files in `folder`."""
    template = folder / "template.db"
    database = Database(f"sqlite:///{template}")
    upgrade.upgrade(database)
    database.close()

    def fresh() -> str:
        file = folder / f"{uuid.uuid4().hex}.db"
        shutil.copy(template, file)
        return f"sqlite:///{file}"

    yield fresh


@contextmanager
def postgresql(server: Server) -> Iterator[Fresh]:
    """Databases of a server; gone with it."""
    admin = create_engine(
        server.url("postgres").replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT"
    )
    template = f"template_{uuid.uuid4().hex[:12]}"
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {template}"))
    database = Database(server.url(template))
    upgrade.upgrade(database)
    database.close()

    def fresh() -> str:
        name = f"test_{uuid.uuid4().hex[:12]}"
        with admin.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name} TEMPLATE {template}"))
        return server.url(name)

    try:
        yield fresh
    finally:
        admin.dispose()
