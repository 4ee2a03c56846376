"""Migrations: where the database stands, and to the head."""

from functools import cache
from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from service.errors import StorageUnavailable
from service.storage.database import Database
from service.storage.dialects import WRITES

_SCRIPTS: Final = Path(__file__).with_name("migrations")
_LOCK: Final = 0x6D657368  # "mesh": replicas that start together upgrade one after the other


@cache
def head() -> str:
    """The step that this release needs."""
    found = ScriptDirectory.from_config(_config()).get_current_head()
    assert found is not None
    return found


@cache
def steps() -> frozenset[str]:
    """All that this release knows."""
    return frozenset(step.revision for step in ScriptDirectory.from_config(_config()).walk_revisions())


def current(database: Database) -> str | None:
    """The step that the database has reached; None: it is empty.

    Raises:
        StorageUnavailable: it cannot be asked.
    """
    try:
        with database.engine.connect() as connection:
            return MigrationContext.configure(connection).get_current_revision()
    except DBAPIError as error:
        raise StorageUnavailable(f"the database is not available: {' '.join(str(error.orig).split())[:200]}") from error


def is_ahead(found: str | None) -> bool:
    """Whether a newer release has taken a database to its step. Steps only ever add, so that this release goes on."""
    return found is not None and found not in steps()


def shortfall(found: str | None) -> str | None:
    """What a database at a step lacks for this release; None: nothing."""
    if found == head() or is_ahead(found):
        return None
    return f"at migration {found or 'none'}, this release needs {head()}: meshwright db upgrade"


def upgrade(database: Database, to: str = "head") -> None:
    """Take the database to a step, in one transaction. One that is ahead of this release stays as it is.

    Raises:
        StorageUnavailable: it cannot be written.
    """

    def step(config: Config) -> None:
        connection = config.attributes["connection"]
        if not is_ahead(MigrationContext.configure(connection).get_current_revision()):
            command.upgrade(config, to)

    _run(database, step)


def downgrade(database: Database, to: str = "base") -> None:
    """Take it back to a step. What later steps added is lost."""
    _run(database, lambda config: command.downgrade(config, to))


def revise(database: Database, message: str) -> None:
    """Write the migration that takes the schema to the tables, to be read and corrected."""
    _run(database, lambda config: command.revision(config, message, autogenerate=True))


def differences(database: Database) -> list[str]:
    """Where the schema is not what the tables say."""
    from alembic.autogenerate import compare_metadata

    from service.storage.tables import Base

    with database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return [str(found) for found in compare_metadata(context, Base.metadata)]


def _config(connection: Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS))
    config.set_main_option("path_separator", "os")
    config.set_main_option("file_template", "%%(rev)s_%%(slug)s")
    config.attributes["connection"] = connection
    return config


def _run(database: Database, step: "object") -> None:
    assert callable(step)
    try:
        with database.engine.execution_options(**{WRITES: True}).begin() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
            step(_config(connection))
    except DBAPIError as error:
        raise StorageUnavailable(
            f"the database cannot be upgraded: {' '.join(str(error.orig).split())[:200]}"
        ) from error
