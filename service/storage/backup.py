"""A copy of the database while it is in use."""

import os
import shutil
import tempfile
from pathlib import Path
from typing import BinaryIO

from cost_models.errors import SpecError
from service.errors import StorageUnavailable
from service.storage import claims
from service.storage.database import Database
from service.storage.programs import run


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
        os.close(claims.owned(partial))
        if database.engine.dialect.name == "sqlite":
            _copy(database, partial)
        else:
            run("pg_dump", database.engine.url, ["--format=custom", f"--file={partial}"])
        partial.replace(file)
    except OSError as error:
        raise StorageUnavailable(f"the database cannot be copied to {file}: {error.strerror}") from error
    finally:
        partial.unlink(missing_ok=True)


def backup_to(database: Database, output: BinaryIO) -> None:
    """The same, written to a pipe. SQLite's copy is made beside the database first.

    Raises:
        SpecError: pg_dump is missing.
        StorageUnavailable: the database cannot be read, or the copy not written.
    """
    file = claims.file_of(database.engine)
    if file is None:
        run("pg_dump", database.engine.url, ["--format=custom"], output)
        return
    try:
        with tempfile.TemporaryDirectory(prefix=".backup-", dir=file.parent) as folder:
            copy = Path(folder, "copy")
            _copy(database, copy)
            with copy.open("rb") as source:
                shutil.copyfileobj(source, output)
            output.flush()
    except OSError as error:
        raise StorageUnavailable(f"the copy of the database cannot be written: {error.strerror}") from error


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
