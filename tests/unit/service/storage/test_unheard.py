"""A connection that is lost together with the answer to a commit: what was committed is not done again."""

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import event, func, select
from sqlalchemy.engine import Connection

from service.storage.database import Database
from service.storage.repositories import Repositories
from service.storage.tables import CalibrationVersion, Solve
from tests.databases.fixtures import Fresh
from tests.unit.service.storage.rows import calibration, solve


@pytest.fixture
def database(postgresql_databases: Fresh) -> Iterator[Database]:
    """SQLite's commits have no way to be lost on."""
    found = Database(postgresql_databases(), retry_seconds=5)
    yield found
    found.close()


def cut(database: Database, *, after: bool) -> list[Any]:
    """Lose the connection of the next commit, before or after the database has done it; who lost it."""
    lost: list[Any] = []

    def lose(connection: Connection) -> None:
        driver: Any = connection.connection.driver_connection
        if lost:
            return
        if after:
            driver.commit()
        driver.close()
        lost.append(driver)

    event.listen(database.engine, "commit", lose)
    return lost


def added(work: Repositories) -> CalibrationVersion:
    row = calibration()
    work.calibrations.add(row)
    return row


@pytest.mark.parametrize("after", [True, False])
def test_a_row_is_added_once(database: Database, after: bool) -> None:
    lost = cut(database, after=after)
    tries: list[CalibrationVersion] = []

    def add(work: Repositories) -> CalibrationVersion:
        tries.append(added(work))
        return tries[-1]

    found = database.write(add)
    assert len(lost) == 1
    assert len(tries) == (1 if after else 2)
    rows = database.read(lambda work: work.session.scalars(select(CalibrationVersion.id)).all())
    assert (rows, found.reason) == ([found.id], "new interconnect")


def test_what_adds_nothing_may_be_done_twice(database: Database) -> None:
    def fill(work: Repositories) -> None:
        constants = calibration()
        work.calibrations.add(constants)
        work.solves.add(solve(constants.id))

    database.write(fill)
    cut(database, after=True)
    database.write(lambda work: work.session.query(Solve).update({Solve.cancel_requested: True}))
    asked = select(func.count()).select_from(Solve).where(Solve.cancel_requested)
    assert database.read(lambda work: work.session.scalar(asked)) == 1
