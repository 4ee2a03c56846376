"""A backup in the place of the database, whatever a crash has left of that."""

import os
import shutil
import sqlite3
import tempfile
from contextlib import closing, suppress
from pathlib import Path

from sqlalchemy import text

from cost_models.errors import SpecError
from service.errors import Conflict, StorageUnavailable
from service.storage import claims, upgrade
from service.storage.database import Database
from service.storage.programs import run

MAGIC_SQLITE, MAGIC_ARCHIVE = b"SQLite format 3\0", b"PGDMP"


def restore(database: Database, backup: Path) -> None:
    """Replace what is in the database by a backup that `meshwright db backup` wrote. All of it or nothing.

    Raises:
        SpecError: the file is no backup of this kind of database, or of a newer release; or pg_restore is missing.
        Conflict: somebody uses the database.
        StorageUnavailable: the backup is spoiled, or the database cannot be written.
    """
    try:
        with backup.open("rb") as opened:
            begin = opened.read(len(MAGIC_SQLITE))
    except OSError as error:
        raise SpecError(f"{backup}: {error.strerror}") from error
    file = claims.file_of(database.engine)
    if file is not None and begin != MAGIC_SQLITE:
        raise SpecError(f"{backup} is no SQLite database, and the database that it would replace is one")
    if file is None and not begin.startswith(MAGIC_ARCHIVE):
        raise SpecError(f"{backup} is no archive of pg_dump, and the database that it would replace is PostgreSQL's")
    if file is None:
        _into_server(database, backup)
        return
    if file.exists() and file.samefile(backup):
        raise SpecError(f"{backup} is the database itself")
    try:
        with claims.nobody_else(file):
            _over_file(file, backup)
    except OSError as error:
        raise StorageUnavailable(f"{backup} cannot be put in the place of {file}: {error.strerror}") from error


def _over_file(file: Path, backup: Path) -> None:
    """What is left of a write-ahead log belongs to the old file, and would be written into the new one."""
    folder = Path(tempfile.mkdtemp(prefix=f"{file.name}.restore-", dir=file.parent))  # its owner's alone
    try:
        owner = file.parent.stat()
        if os.geteuid() == 0:
            os.chown(folder, owner.st_uid, owner.st_gid)  # and with it what is made there
        copy = folder / file.name
        os.close(claims.owned(copy))
        shutil.copyfile(backup, copy)
        log = backup.with_name(backup.name + "-wal")
        if log.exists():  # of a copy that was made by other means than ours
            shutil.copyfile(log, folder / f"{file.name}-wal")
        _check(copy, backup)
        for ending in ("-wal", "-shm"):
            file.with_name(file.name + ending).unlink(missing_ok=True)
        copy.replace(file)
        _to_disk(file.parent)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _check(copy: Path, backup: Path) -> None:
    """Whole, and of this release or an earlier one; and all of it in one file, on the disk."""
    try:
        with closing(sqlite3.connect(copy)) as connection:
            said = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if said != "ok":
                raise StorageUnavailable(f"{backup} is spoiled: {said}")
            rows = connection.execute("SELECT version_num FROM alembic_version").fetchall()
            connection.execute("PRAGMA journal_mode=DELETE")
    except sqlite3.OperationalError as error:
        raise SpecError(f"{backup} is no database of this service: {error}") from error
    except sqlite3.DatabaseError as error:
        raise StorageUnavailable(f"{backup} is spoiled: {error}") from error
    for (found,) in rows:
        if found not in upgrade.steps():
            raise SpecError(f"{backup} is at migration {found}, this release knows them up to {upgrade.head()}")
    _to_disk(copy)


def _into_server(database: Database, archive: Path) -> None:
    """In one transaction: an archive that cannot be read to its end changes nothing."""
    others = _others(database)
    database.engine.dispose()  # what is locked by our own connection would be waited for
    if others:
        raise Conflict(f"{others} connections use the database; stop the services first")
    run(
        "pg_restore",
        database.engine.url,
        ["--clean", "--if-exists", "--no-owner", "--exit-on-error", "--single-transaction", str(archive)],
    )


def _others(database: Database) -> int:
    """Connections beside ours. A session of the server itself has no user."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    asked = text(f"{query} AND usesysid IS NOT NULL")
    return int(database.read(lambda work: work.session.execute(asked).scalar_one()))


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    with suppress(OSError):  # a file system that knows no such thing for folders
        os.fsync(descriptor)
    os.close(descriptor)
