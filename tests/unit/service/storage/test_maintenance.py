"""`meshwright db`: upgrade, backup, prune, on both databases."""

import json
import sqlite3
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from typer.testing import CliRunner

from cost_models.errors import SpecError
from service.cli_db import app
from service.cli_keys import app as keys
from service.storage import upgrade
from service.storage.backup import backup_to
from service.storage.database import Database
from service.storage.prune import prune
from service.storage.repositories import Repositories
from service.storage.repositories.solves import Held
from service.storage.tables import DEFAULT_PROJECT, Job, JobVersion
from tests.databases.postgresql import program
from tests.unit.service.storage.rows import calibration, measurement, plan, solve

LONG_AGO = datetime.now(UTC) - timedelta(days=100)


def run(*arguments: str) -> Any:
    done = CliRunner().invoke(app, [*arguments, "--json"])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return json.loads(done.stdout)


def filled(database: Database) -> dict[str, str]:
    """Old plans, of which all but one are kept for a reason."""
    constants = calibration()
    reasons = ("measured", "tagged", "followed", "forgotten")
    ids: dict[str, str] = {}

    def fill(work: Repositories) -> None:
        work.calibrations.add(constants)
        for reason in reasons:
            row = plan(constants.id, created_at=LONG_AGO)
            work.plans.add(row)
            work.solves.add(solve(constants.id, id=row.id, state="done", ended_at=LONG_AGO, created_at=LONG_AGO))
            ids[reason] = row.id
        young = plan(constants.id)
        work.plans.add(young)
        ids["young"] = young.id
        work.measurements.add(measurement(ids["measured"]))
        work.history.tag(DEFAULT_PROJECT, ids["tagged"], "best")
        work.history.add_job(Job(id="j", project_id=DEFAULT_PROJECT, name="j"))
        work.history.add_version(
            JobVersion(
                job_id="j", number=1, project_id=DEFAULT_PROJECT, plan_id=ids["followed"], author="a", reason="r"
            )
        )
        waiting = solve(constants.id, created_at=LONG_AGO)
        work.solves.add(waiting)
        ids["waiting"] = waiting.id
        work.keys.add(DEFAULT_PROJECT, "young", "a" * 64, young.id)

    database.write(fill)
    return ids


def test_what_nobody_needs_is_forgotten(database: Database, database_url: str) -> None:
    ids = filled(database)
    gone = run("prune", "--older-than-days", "30", "--url", database_url)
    assert gone == {"plans": 1, "requests": 1, "idempotency_keys": 0, "deliveries": 0, "audit_entries": 0}

    def left(work: Repositories) -> set[str]:
        plans = {name for name, row in ids.items() if work.plans.get(DEFAULT_PROJECT, row) is not None}
        solves = {name for name, row in ids.items() if work.solves.get(DEFAULT_PROJECT, row) is not None}
        return plans | solves

    assert database.read(left) == set(ids) - {"forgotten"}
    assert database.write(lambda work: prune(LONG_AGO - timedelta(days=1), work)).plans == 0


def test_a_key_goes_with_the_plan_it_made(database: Database, database_url: str) -> None:
    """Else its request would be answered with a plan that is no more."""
    ids = filled(database)

    def keys(work: Repositories) -> set[str]:
        return {name for name in (*ids, "run") if work.keys.get(DEFAULT_PROJECT, name) is not None}

    def again(work: Repositories) -> None:
        for name in ("forgotten", "measured"):
            work.keys.add(DEFAULT_PROJECT, name, "a" * 64, ids[name])
        work.keys.add(DEFAULT_PROJECT, "run", "a" * 64, "a measurement's id")

    database.write(again)
    assert run("prune", "--older-than-days", "30", "--url", database_url)["idempotency_keys"] == 1
    assert database.read(keys) == {"young", "measured", "run"}


def test_an_upgrade_says_from_where_to_where(database_url: str, tmp_path: Path) -> None:
    assert run("upgrade", "--url", database_url) == {"from": upgrade.head(), "to": upgrade.head()}
    assert run("upgrade", "--url", f"sqlite:///{tmp_path}/deep/new.db") == {"from": None, "to": upgrade.head()}


def test_what_is_ahead_stays_as_it_is(database: Database, database_url: str) -> None:
    with database.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    done = CliRunner().invoke(app, ["upgrade", "--url", database_url])
    assert (done.exit_code, done.stdout) == (0, f"9999 is ahead of this release ({upgrade.head()}): nothing to do\n")


def test_only_an_upgrade_makes_a_database(tmp_path: Path) -> None:
    file = tmp_path / "none.db"
    for program_, arguments in (
        (app, ["backup", str(tmp_path / "copy")]),
        (app, ["prune", "--older-than-days", "1"]),
        (keys, ["create", "me", "--scope", "admin"]),
        (keys, ["list"]),
    ):
        done = CliRunner().invoke(program_, [*arguments, "--url", f"sqlite:///{file}"])
        assert isinstance(done.exception, SpecError)
        assert f"there is no database at {file}: meshwright db upgrade makes one" in str(done.exception)
        assert not list(tmp_path.iterdir())


def test_what_lacks_migrations_is_backed_up_but_not_changed(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    upgrade.downgrade(database, "0006")
    lacking = f"is at migration 0006, this release needs {upgrade.head()}: meshwright db upgrade"
    with pytest.raises(SpecError, match=lacking):
        run("prune", "--older-than-days", "30", "--url", database_url)
    assert run("backup", str(tmp_path / "copy"), "--url", database_url)["bytes"] > 0
    upgrade.downgrade(database)
    with pytest.raises(SpecError, match="holds no tables: meshwright db upgrade makes them"):
        run("backup", str(tmp_path / "another"), "--url", database_url)


def test_a_backup_goes_to_a_pipe(database: Database, database_url: str, tmp_path: Path) -> None:
    filled(database)
    done = CliRunner().invoke(app, ["backup", "-", "--url", database_url])
    if database.engine.dialect.name == "sqlite":
        assert done.stdout_bytes.startswith(b"SQLite format 3")
    else:
        with (tmp_path / "copy").open("wb") as output:
            backup_to(database, output)
        assert (tmp_path / "copy").read_bytes().startswith(b"PGDMP")


def test_a_key_says_where_it_lets_in(database_url: str) -> None:
    done = CliRunner().invoke(keys, ["create", "me", "--scope", "admin", "--url", database_url])
    where = database_url.partition("?")[0]
    assert f"It lets into the service of {where}." in done.stderr
    assert len(done.stdout.splitlines()) == 1


def test_a_backup_is_whole_and_replaces_nothing(database: Database, database_url: str, tmp_path: Path) -> None:
    ids, file = filled(database), tmp_path / "backup"
    assert run("backup", str(file), "--url", database_url)["bytes"] > 0
    if database.engine.dialect.name == "sqlite":
        with sqlite3.connect(file) as copy:
            found = {row[0] for row in copy.execute("SELECT id FROM plans")}
        copy.close()
        assert found == set(ids.values()) - {ids["waiting"]}
    else:
        listed = subprocess.run(
            [program("pg_restore"), "--list", str(file)], capture_output=True, text=True, check=True
        )
        assert "TABLE DATA" in listed.stdout
        assert "job_versions" in listed.stdout
    with pytest.raises(SpecError, match="is there already"):
        run("backup", str(file), "--url", database_url)


def test_finishing_twice_counts_once(database: Database) -> None:
    """A commit whose answer was lost is repeated: the second time nothing changes."""
    constants = calibration()
    row = solve(constants.id)

    def fill(work: Repositories) -> None:
        work.calibrations.add(constants)
        work.solves.add(row)

    database.write(fill)
    [claimed] = database.write(lambda work: work.solves.claim("a", verbs=["plan"], most=1, seconds=30))
    held = Held(claimed.id, claimed.fence)
    assert database.write(lambda work: work.solves.finish(held, "done"))
    assert not database.write(lambda work: work.solves.finish(held, "done"))


def test_no_plan_is_older_than_a_century(database_url: str) -> None:
    refused = CliRunner().invoke(app, ["prune", "--older-than-days", "99999999999", "--url", database_url])
    assert refused.exit_code == 2, refused.output
