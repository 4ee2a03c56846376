"""Fresh, upgraded databases, copied from one that was upgraded once."""

import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, event, text

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
    """Schemas of one database, each upgraded by what the first upgrade said: quicker than a database each."""
    admin = create_engine(
        server.url("postgres").replace("postgresql:", "postgresql+psycopg:"),
        isolation_level="AUTOCOMMIT",
        pool_pre_ping=True,  # tests restart the server
    )
    said: list[tuple[str, Any]] = []

    def schema() -> str:
        name = f"test_{uuid.uuid4().hex[:12]}"
        with admin.connect() as connection:
            connection.execute(text(f"CREATE SCHEMA {name}"))
        return name

    def address(name: str) -> str:
        return f"{server.url('postgres')}?options=-csearch_path%3D{name}"

    template = Database(address(schema()))

    @event.listens_for(template.engine, "before_cursor_execute")
    def _note(_: Any, __: Any, statement: str, parameters: Any, *___: Any) -> None:
        if not statement.lstrip().startswith("SELECT"):
            said.append((statement, parameters))

    upgrade.upgrade(template)
    template.close()

    def fresh() -> str:
        name = schema()
        with admin.connect() as connection:
            connection.exec_driver_sql(f"SET search_path TO {name}")
            for statement, parameters in said:
                connection.exec_driver_sql(statement, parameters or None)
            connection.exec_driver_sql("RESET search_path")
        return address(name)

    try:
        yield fresh
    finally:
        admin.dispose()
