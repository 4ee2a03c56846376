"""A copy of the database while it is in use."""

import os
import shutil
import subprocess
from pathlib import Path

from cost_models.errors import SpecError
from service.errors import StorageUnavailable
from service.storage.database import Database


def backup(database: Database, file: Path) -> None:
    """Write the database to `file`: SQLite as a database file, PostgreSQL as an archive for pg_restore.

    Raises:
        SpecError: the file is there already, or pg_dump is missing.
        StorageUnavailable: the database or the file cannot be read or written.
    """
    if file.exists():
        raise SpecError(f"{file} is there already; a backup replaces nothing")
    partial = file.with_name(file.name + ".partial")
    try:
        if database.engine.dialect.name == "sqlite":
            _copy(database, partial)
        else:
            _dump(database, partial)
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)


def _copy(database: Database, file: Path) -> None:
    import sqlite3

    source = database.engine.raw_connection()
    try:
        target = sqlite3.connect(file)
        try:
            source.driver_connection.backup(target)  # type: ignore[union-attr]
        finally:
            target.close()
    except sqlite3.Error as error:
        raise StorageUnavailable(f"the database cannot be copied to {file}: {error}") from error
    finally:
        source.close()


def _dump(database: Database, file: Path) -> None:
    program = shutil.which("pg_dump")
    if program is None:
        raise SpecError("pg_dump is missing; it comes with PostgreSQL's client programs")
    url = database.engine.url
    # The password goes by the environment: arguments are seen by everyone on the machine.
    address = url.set(drivername="postgresql", password=None).render_as_string()
    environment = {**os.environ, **({"PGPASSWORD": str(url.password)} if url.password else {})}
    command = [program, "--format=custom", f"--file={file}", f"--dbname={address}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise StorageUnavailable(f"pg_dump failed: {' '.join(done.stderr.split())[:300]}")
