"""One chain of migrations, equal to the tables on both databases; history cannot be rewritten."""

from pathlib import Path

import pytest
from sqlalchemy import inspect, text

from cost_models.errors import SpecError
from service.errors import Conflict, StorageUnavailable
from service.storage import guards, upgrade
from service.storage.database import Database
from service.storage.repositories import Repositories
from service.storage.tables import Base
from tests.databases.fixtures import Fresh
from tests.unit.service.storage.rows import calibration, measurement, plan


def test_the_migrations_make_what_the_tables_say(database: Database) -> None:
    assert upgrade.current(database) == upgrade.head()
    assert upgrade.differences(database) == []


def test_down_and_up_again(database: Database) -> None:
    upgrade.downgrade(database)
    assert upgrade.current(database) is None
    assert set(inspect(database.engine).get_table_names()) <= {"alembic_version"}
    upgrade.upgrade(database)
    assert upgrade.differences(database) == []
    upgrade.upgrade(database)


def test_every_table_belongs_to_a_project(database: Database) -> None:
    with_project = {table.name for table in Base.metadata.sorted_tables if "project_id" in table.columns}
    assert with_project | {"projects"} == {table.name for table in Base.metadata.sorted_tables}


@pytest.mark.parametrize(
    ("table", "verb"), [(table, verb) for table, verbs in guards.IMMUTABLE.items() for verb in verbs]
)
def test_what_happened_stays_as_it_was(database: Database, table: str, verb: str) -> None:
    constants = calibration()
    made = plan(constants.id)

    def fill(work: Repositories) -> None:
        session = work.session
        for row in (constants, made, measurement(made.id)):
            session.add(row)
            session.flush()
        session.execute(
            text("INSERT INTO jobs (id, project_id, name, created_at) VALUES ('j', 'default', 'j', CURRENT_TIMESTAMP)")
        )
        session.execute(
            text(
                "INSERT INTO job_versions (job_id, number, project_id, plan_id, author, reason, created_at) "
                f"VALUES ('j', 1, 'default', '{made.id}', 'a', 'r', CURRENT_TIMESTAMP)"
            )
        )

    database.write(fill)
    statement = f"UPDATE {table} SET project_id = project_id" if verb == "UPDATE" else f"DELETE FROM {table}"
    with pytest.raises(Conflict, match=f"{verb} of {table} is refused"):
        database.write(lambda work: work.session.execute(text(statement)))
    assert database.read(lambda work: work.session.execute(text(f"SELECT count(*) FROM {table}")).scalar_one()) >= 1


@pytest.mark.parametrize("table", guards.KEPT)
def test_what_is_kept_is_never_emptied(postgresql_databases: Fresh, table: str) -> None:
    database = Database(postgresql_databases())
    with pytest.raises(Conflict, match=f"TRUNCATE of {table} is refused"):
        database.write(lambda work: work.session.execute(text(f"TRUNCATE {table} CASCADE")))
    database.close()


def test_what_was_in_force_before_activations_stays_in_force(database: Database) -> None:
    upgrade.downgrade(database, "0004")
    columns = "id, project_id, version, content_sha256, author, reason, data, content, created_at"
    with database.engine.begin() as connection:
        for name in ("a", "b"):
            values = f"'{name}', 'default', '{name}', '{name}', 'ada', 'why', '{{}}', '{{}}', CURRENT_TIMESTAMP"
            connection.execute(text(f"INSERT INTO calibrations ({columns}) VALUES ({values})"))
    upgrade.upgrade(database)
    assert database.read(lambda work: work.calibrations.in_force("default")) == ("b", True)
    assert database.read(lambda work: work.calibrations.in_force("other")) == (None, False)
    for statement in map(text, ("UPDATE activations SET held = NOT held", "DELETE FROM activations")):
        with pytest.raises(Conflict, match="activations is refused"):
            database.write(lambda work, change=statement: work.session.execute(change))  # type: ignore[misc]


def test_an_address_of_another_kind_is_refused() -> None:
    with pytest.raises(SpecError, match="mysql; sqlite and postgresql are supported"):
        Database("mysql://host/name")
    with pytest.raises(SpecError, match="names no file"):
        Database("sqlite://")
    with pytest.raises(SpecError, match="no address") as refused:
        Database("secret-password")
    assert "secret" not in str(refused.value)


def test_a_read_only_file_is_unavailable_at_once_and_unharmed(tmp_path: Path) -> None:
    file = tmp_path / "a.db"
    database = Database(f"sqlite:///{file}", retry_seconds=30)
    upgrade.upgrade(database)

    def add(work: Repositories) -> None:
        work.session.execute(text("PRAGMA query_only = ON"))
        work.calibrations.add(calibration())

    with pytest.raises(StorageUnavailable, match="readonly"):
        database.write(add)
    database.close()


def test_a_file_that_cannot_be_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SpecError, match=r"database_url is .*, whose folder cannot be made: "):
        Database(f"sqlite:///{tmp_path}/file/more/x.db")
    (tmp_path / "noise.db").write_bytes(b"noise" * 1000)
    database = Database(f"sqlite:///{tmp_path}/noise.db", retry_seconds=0)
    with pytest.raises(StorageUnavailable, match="the database is not available: file is not a database"):
        upgrade.current(database)
    database.close()
