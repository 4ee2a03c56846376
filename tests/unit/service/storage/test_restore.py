"""A backup is put back whole, over whatever a crash has left; never under a service, never another kind of file."""

import json
import os
import shutil
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cost_models.errors import SpecError
from service.cli_db import app
from service.errors import Conflict, StorageUnavailable
from service.storage import upgrade
from service.storage.claims import Claim
from service.storage.database import Database
from tests.databases.fixtures import Fresh
from tests.unit.service.client import client
from tests.unit.service.storage.rows import calibration

ENDINGS = ("", "-wal", "-shm")


def run(*arguments: str) -> Any:
    done = CliRunner().invoke(app, [*arguments, "--json"])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return json.loads(done.stdout)


def add(url: str) -> str:
    """A calibration more, and its id."""
    database, row = Database(url), calibration()
    database.write(lambda work: work.calibrations.add(row))
    database.close()
    return row.id


def calibrations(url: str) -> set[str]:
    database = Database(url)
    try:
        return {
            row.id for row in database.read(lambda work: work.calibrations.page("default", after=None, size=50).rows)
        }
    finally:
        database.close()


def crashed(url: str, folder: Path) -> Path:
    """What a killed service leaves: a log with more in it than the file."""
    file = Path(url.removeprefix("sqlite:///"))
    with closing(sqlite3.connect(file)) as held:
        held.execute("PRAGMA wal_autocheckpoint=0")
        for one in range(50):
            held.execute("CREATE TABLE IF NOT EXISTS spare (text)")
            held.execute("INSERT INTO spare VALUES (?)", (f"{one}" * 4000,))
            held.commit()
        for ending in ENDINGS:
            shutil.copy(file.with_name(file.name + ending), folder / f"meshwright.db{ending}")
    return folder / "meshwright.db"


def test_a_backup_replaces_what_came_after_it(database_alone: str, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    first = add(database_alone)
    run("backup", str(backup), "--url", database_alone)
    add(database_alone)
    assert run("restore", str(backup), "--url", database_alone)["migration"] == upgrade.head()
    assert calibrations(database_alone) == {first}


def test_the_log_of_a_crash_is_not_written_into_it(sqlite_databases: Fresh, tmp_path: Path) -> None:
    url, backup = sqlite_databases(), tmp_path / "backup"
    first = add(url)
    run("backup", str(backup), "--url", url)
    file = crashed(url, tmp_path)
    assert file.with_name("meshwright.db-wal").stat().st_size > 100_000
    run("restore", str(backup), "--url", f"sqlite:///{file}")
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("SELECT name FROM sqlite_master WHERE name = 'spare'").fetchone() is None
    assert calibrations(f"sqlite:///{file}") == {first}
    assert not list(tmp_path.glob("*restore-*"))


def test_a_copy_of_a_crash_is_restored_with_its_log(sqlite_databases: Fresh, tmp_path: Path) -> None:
    source, target = crashed(sqlite_databases(), tmp_path), tmp_path / "new.db"
    run("restore", str(source), "--url", f"sqlite:///{target}")
    with closing(sqlite3.connect(target)) as connection:
        assert connection.execute("SELECT count(*) FROM spare").fetchone() == (50,)


def test_a_service_keeps_its_database(database_alone: str, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    run("backup", str(backup), "--url", database_alone)
    with client(database_url=database_alone) as http:
        assert http.get("/readyz").status_code == 200
        with pytest.raises(Conflict, match="stop"):
            run("restore", str(backup), "--url", database_alone)
    run("restore", str(backup), "--url", database_alone)


def test_nothing_else_is_put_in_its_place(sqlite_databases: Fresh, tmp_path: Path) -> None:
    url = sqlite_databases()
    row, own = add(url), Path(url.removeprefix("sqlite:///"))
    run("backup", str(tmp_path / "good"), "--url", url)
    whole = (tmp_path / "good").read_bytes()
    (tmp_path / "text").write_text("no database")
    (tmp_path / "cut").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "archive").write_bytes(b"PGDMP and more of it")
    with closing(sqlite3.connect(tmp_path / "other")) as other:
        other.execute("CREATE TABLE a (b)")
    shutil.copy(tmp_path / "good", tmp_path / "newer")
    with closing(sqlite3.connect(tmp_path / "newer")) as newer:
        newer.execute("UPDATE alembic_version SET version_num = '9999'")
        newer.commit()
    for name, kind, why in (
        ("text", SpecError, "no SQLite database"),
        ("archive", SpecError, "no SQLite database"),
        ("missing", SpecError, "No such file"),
        ("cut", StorageUnavailable, "is spoiled"),
        ("other", SpecError, "no database of this service"),
        ("newer", SpecError, "migration 9999"),
    ):
        with pytest.raises(kind, match=why):
            run("restore", str(tmp_path / name), "--url", url)
    with pytest.raises(SpecError, match="the database itself"):
        run("restore", str(own), "--url", url)
    assert calibrations(url) == {row}


def test_files_are_their_owner_s_alone(database_url: str, tmp_path: Path) -> None:
    backup, new = tmp_path / "backup", tmp_path / "data" / "new.db"
    run("backup", str(backup), "--url", database_url)
    run("upgrade", "--url", f"sqlite:///{new}")
    database = Database(f"sqlite:///{new}")
    database.write(lambda work: work.calibrations.add(calibration()))
    made = [backup, *(new.with_name(new.name + ending) for ending in ENDINGS)]
    assert {stat.S_IMODE(file.stat().st_mode) for file in made} == {0o600}
    database.close()
    run("backup", str(tmp_path / "again"), "--url", f"sqlite:///{new}")
    run("restore", str(tmp_path / "again"), "--url", f"sqlite:///{new}")
    assert stat.S_IMODE(new.stat().st_mode) == 0o600


def test_what_root_makes_is_the_folder_s_owner_s(sqlite_databases: Fresh, tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    if os.geteuid() == 0:  # nobody else gives files away
        os.chown(folder, 1234, 1235)
    owner = folder.stat().st_uid, folder.stat().st_gid
    run("backup", str(tmp_path / "backup"), "--url", sqlite_databases())
    run("restore", str(tmp_path / "backup"), "--url", f"sqlite:///{folder}/meshwright.db")
    for file in folder.iterdir():
        assert (file.stat().st_uid, file.stat().st_gid) == owner, file


def test_a_second_service_is_told_of_the_first(
    sqlite_databases: Fresh, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    def said() -> str:
        """Where it is said depends on whether an earlier test has set logging up."""
        printed = capsys.readouterr()
        return printed.out + printed.err + caplog.text

    url = sqlite_databases()
    with client(database_url=url):
        assert "another service" not in said()
        with client(database_url=url) as second:
            assert second.get("/readyz").status_code == 200
            assert "another service uses this SQLite database" in said()
    claim = Claim(Path(url.removeprefix("sqlite:///")))
    assert claim.alone
    claim.release()


def test_a_malformed_database_is_not_ready(sqlite_databases: Fresh) -> None:
    url = sqlite_databases()
    for _ in range(20):
        add(url)
    file = Path(url.removeprefix("sqlite:///"))
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        query = "SELECT rootpage FROM sqlite_master WHERE name = 'calibrations'"
        page, size = connection.execute(query).fetchone()[0], connection.execute("PRAGMA page_size").fetchone()[0]
    with file.open("r+b") as opened:
        opened.seek((page - 1) * size)
        opened.write(b"\xff" * size)
    with client(database_url=url) as http:
        checks = http.get("/readyz").json()["checks"]
        assert checks["database"]["detail"] == "it is malformed: meshwright db restore"
