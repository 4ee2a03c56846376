"""The queue: claimed once, held under a lease, ended under a fence."""

import time

import pytest

from service.storage.database import Database
from service.storage.repositories import Repositories
from service.storage.repositories.solves import Filters, Held
from service.storage.tables import DEFAULT_PROJECT, Solve
from tests.unit.service.storage.claimants import claim, taken_together
from tests.unit.service.storage.rows import OTHER_PROJECT, calibration, other_project, solve


@pytest.fixture
def constants(database: Database) -> str:
    version = calibration()
    database.write(lambda work: work.calibrations.add(version))
    return version.id


def accepted(database: Database, constants: str, count: int = 1) -> list[str]:
    rows = [solve(constants) for _ in range(count)]

    def add(work: Repositories) -> None:
        for row in rows:
            work.solves.add(row)

    database.write(add)
    return [row.id for row in rows]


def found(database: Database, solve_id: str) -> Solve:
    row = database.read(lambda work: work.solves.get(DEFAULT_PROJECT, solve_id))
    assert row is not None
    return row


def test_the_oldest_is_claimed_first_and_once(database: Database, constants: str) -> None:
    ids = accepted(database, constants, 3)
    assert [row.id for row in claim(database, most=2)] == ids[:2]
    assert [row.id for row in claim(database, "b")] == ids[2:]
    assert claim(database, "c") == []


def test_a_silent_holder_loses_its_lease_and_its_late_result(database: Database, constants: str) -> None:
    [solve_id] = accepted(database, constants)
    [first] = claim(database, seconds=0.05)
    time.sleep(0.1)
    [second] = claim(database, "b")
    assert (second.id, second.attempts) == (solve_id, 2)
    assert second.fence > first.fence
    late, right = Held(solve_id, first.fence), Held(solve_id, second.fence)
    assert database.write(lambda work: work.solves.finish(late, "done")) is False
    assert database.write(lambda work: work.solves.finish(right, "done")) is True
    assert database.write(lambda work: work.solves.finish(right, "failed")) is False
    assert found(database, solve_id).state == "done"


def test_a_renewed_lease_holds(database: Database, constants: str) -> None:
    [solve_id] = accepted(database, constants)
    [row] = claim(database, seconds=0.2)
    held, progress = Held(solve_id, row.fence), {solve_id: {"incumbent": 1.5}}
    renewed = database.write(lambda work: work.solves.renew([held], progress, 30))
    assert renewed.kept == {held}
    time.sleep(0.25)
    assert claim(database, "b") == []
    assert found(database, solve_id).progress == {"incumbent": 1.5}
    stale = Held(solve_id, row.fence - 1)
    assert not database.write(lambda work: work.solves.renew([stale], {}, 30)).kept


def test_what_is_given_back_is_claimed_again(database: Database, constants: str) -> None:
    [solve_id] = accepted(database, constants)
    [row] = claim(database)
    held = Held(solve_id, row.fence)
    assert database.write(lambda work: work.solves.give_back(held, died=True))
    [again] = claim(database, "b")
    assert (again.deaths, again.attempts) == (1, 2)
    assert database.write(lambda work: work.solves.give_back(Held(again.id, again.fence), died=False))
    [third] = claim(database, "c")
    assert (third.deaths, third.attempts) == (1, 2)


def test_cancelling(database: Database, constants: str) -> None:
    waiting, running = accepted(database, constants, 2)
    database.write(lambda work: work.solves.cancel(DEFAULT_PROJECT, waiting))
    assert found(database, waiting).state == "cancelled"
    [row] = claim(database)
    assert row.id == running
    assert database.write(lambda work: work.solves.cancel(DEFAULT_PROJECT, running)) == "running"
    renewed = database.write(lambda work: work.solves.renew([Held(running, row.fence)], {}, 30))
    assert renewed.cancelled == {running}
    assert database.write(lambda work: work.solves.cancel(DEFAULT_PROJECT, "none")) is None


def test_equal_questions_under_way_are_one(database: Database, constants: str) -> None:
    first = solve(constants, content_key="k")
    database.write(lambda work: work.solves.add(first))
    assert database.read(lambda work: work.solves.live(DEFAULT_PROJECT, "k")) == first.id
    from service.errors import Conflict

    with pytest.raises(Conflict):
        database.write(lambda work: work.solves.add(solve(constants, content_key="k")))
    database.write(lambda work: work.solves.cancel(DEFAULT_PROJECT, first.id))
    database.write(lambda work: work.solves.add(solve(constants, content_key="k")))


def test_many_claimants_share_the_work_without_overlap(database: Database, constants: str) -> None:
    ids = accepted(database, constants, 24)
    assert sorted(taken_together(database)) == sorted(ids)


def test_pages_run_newest_first_within_a_project(database: Database, constants: str) -> None:
    ids = accepted(database, constants, 5)
    database.write(other_project)
    stranger = solve(constants, project_id=OTHER_PROJECT)
    database.write(lambda work: work.solves.add(stranger))
    seen: list[str] = []
    after = None
    while True:
        token = after
        page = database.read(lambda work: work.solves.page(DEFAULT_PROJECT, Filters(), after=token, size=2))  # noqa: B023
        seen += [row.id for row in page.rows]
        after = page.next_after
        if after is None:
            break
    assert seen == ids[::-1]
    assert database.read(lambda work: work.solves.get(DEFAULT_PROJECT, stranger.id)) is None
    one = database.read(lambda work: work.solves.page(DEFAULT_PROJECT, Filters(state="done"), after=None, size=2))
    assert (list(one.rows), one.next_after) == ([], None)
