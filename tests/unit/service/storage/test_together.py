"""Reads done together: one transaction for many, each with its own answer or error, none kept waiting by a slow one."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import event, text

from service.errors import NotFound, StorageUnavailable, Unstorable
from service.storage.database import Database
from service.storage.repositories import Repositories
from service.storage.tables import CalibrationVersion
from service.storage.together import PATIENCE_SECONDS
from tests.unit.service.storage.rows import OTHER_PROJECT, activation, calibration, other_project

Read = Callable[[Repositories], Any]


def together(database: Database, *reads: Read) -> list[Any]:
    """Results or errors of reads asked for at the same time."""

    async def ask() -> list[Any]:
        asked: list[Awaitable[Any]] = [database.reading(read) for read in reads]
        return await asyncio.gather(*asked, return_exceptions=True)

    return asyncio.run(ask())


def one(work: Repositories) -> int:
    return int(work.session.execute(text("SELECT 1")).scalar_one())


def missing(_: Repositories) -> None:
    raise NotFound("no such thing")


def broken(work: Repositories) -> None:
    work.session.execute(text("SELECT * FROM nowhere"))


def unstorable(work: Repositories) -> Any:
    if work.session.get_bind().dialect.name == "sqlite":
        raise UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed")
    return work.plans.content("default", "\x00")


def test_they_share_a_transaction(database: Database) -> None:
    found = together(database, *[lambda work: work.session] * 20)
    # The first ones may have begun before the rest was asked for.
    assert len({id(session) for session in found}) <= 3


def test_an_equal_question_is_asked_once(database: Database) -> None:
    asked: list[str] = []
    event.listen(database.engine, "before_cursor_execute", lambda *about: asked.append(about[2]))

    def newest(work: Repositories) -> str | None:
        return work.calibrations.in_force("default").calibration_id

    assert together(database, *[newest] * 20) == [None] * 20
    assert 1 <= len([statement for statement in asked if "activations" in statement]) <= 3
    assert database.write(lambda work: [newest(work), newest(work)]) == [None, None]
    assert len([statement for statement in asked if "activations" in statement]) >= 3, "a writer sees its own changes"


def test_each_has_its_own_error(database: Database) -> None:
    found = together(database, one, missing, one, broken, one, unstorable, one)
    assert found[::2] == [1, 1, 1, 1]
    assert [type(error) for error in found[1::2]] == [NotFound, StorageUnavailable, Unstorable]


def test_what_was_committed_before_is_seen(database: Database) -> None:
    database.write(other_project)

    async def ask() -> None:
        others = [asyncio.create_task(_repeated(database)) for _ in range(4)]
        for _ in range(10):
            version = calibration(project_id=OTHER_PROJECT)
            await database.writing(lambda work, version=version: _in_force(work, version))  # type: ignore[misc]
            assert await database.reading(lambda work: work.calibrations.in_force(OTHER_PROJECT)) == (version.id, False)
        for other in others:
            other.cancel()

    asyncio.run(ask())


async def _repeated(database: Database) -> None:
    while True:
        await database.reading(lambda work: work.calibrations.in_force(OTHER_PROJECT))


def _in_force(work: Repositories, version: CalibrationVersion) -> None:
    work.calibrations.add(version)
    work.calibrations.activate(activation(version))


def test_a_slow_one_does_not_keep_the_next_waiting(database: Database) -> None:
    async def ask() -> tuple[float, float]:
        began = time.monotonic()
        slow = asyncio.create_task(database.reading(lambda _: time.sleep(3.0)))
        await asyncio.sleep(0.2)
        assert await database.reading(one) == 1
        quick = time.monotonic() - began
        await slow
        return quick, time.monotonic() - began

    quick, all_ = asyncio.run(ask())
    assert quick < 3.0 < all_
    assert PATIENCE_SECONDS < 0.2


def test_who_asked_may_go_away(database: Database) -> None:
    async def ask() -> int:
        gone = asyncio.create_task(database.reading(lambda _: time.sleep(0.1)))
        await asyncio.sleep(0.02)
        gone.cancel()
        return await database.reading(one)

    assert asyncio.run(ask()) == 1


@pytest.mark.parametrize("reads", [1, 5])
def test_an_absent_database_is_waited_for_once(reads: int, tmp_path: Any) -> None:
    database = Database("postgresql://nobody@127.0.0.1:9/none", retry_seconds=0.5)
    started = time.monotonic()
    try:
        found = together(database, *[one] * reads)
    finally:
        database.close()
    assert {type(error) for error in found} == {StorageUnavailable}
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("fails", [False, True])
def test_rows_that_nobody_fetched_leave_no_old_snapshot(database: Database, fails: bool) -> None:
    """Whoever has them, a traceback say, may keep them while the connection serves the next reader."""
    kept: list[Any] = []

    def add(work: Repositories) -> None:
        for _ in range(3):
            work.calibrations.add(calibration())

    def half(work: Repositories) -> None:
        rows = work.session.connection().exec_driver_sql("SELECT id FROM calibrations")
        kept.append((rows, rows.fetchone()))
        if fails:
            raise NotFound("in the middle of the rows")

    def count(work: Repositories) -> int:
        return int(work.session.execute(text("SELECT count(*) FROM calibrations")).scalar_one())

    database.write(add)
    for _ in range(8):
        with suppress(NotFound):
            database.read(half)
    database.write(add)
    assert [database.read(count) for _ in range(8)] == [6] * 8
