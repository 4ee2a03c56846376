"""The dispatcher: one more try for a dead worker, late results refused, an absent database waited for."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from structlog.testing import capture_logs

from service.errors import PoolAway, StorageUnavailable, WorkerDied
from service.runtime import runtime
from service.settings import ServiceSettings
from service.solving.pool import OnProgress
from service.solving.worker import Answer, Task
from service.storage.database import Database
from service.storage.repositories import Repositories
from service.storage.tables import DEFAULT_PROJECT, Solve
from tests.databases import ambient
from tests.unit.service.client import JOB, FakePool, client

pytestmark = pytest.mark.usefixtures("databases")
WAIT = {"Prefer": "wait=20"}
T = TypeVar("T")


class Dying(FakePool):
    """Its first workers die."""

    def __init__(self, deaths: int, of: type[WorkerDied] = WorkerDied) -> None:
        super().__init__()
        self.deaths, self.of = deaths, of

    async def submit(self, task: Task, on_progress: OnProgress) -> Answer:
        self.tasks.append(task)
        if len(self.tasks) <= self.deaths:
            raise self.of("the solver process ended in the middle of the solve")
        return self.answer(task)


def in_database(url: str, work: Callable[[Repositories], T]) -> T:
    """Done in a transaction beside the service."""
    database = Database(url)
    try:
        return database.write(work)
    finally:
        database.close()


def stored(url: str, place: str) -> Solve:
    row = in_database(url, lambda work: work.solves.get(DEFAULT_PROJECT, place.rpartition("/")[2]))
    assert row is not None
    return row


def rewritten(url: str, place: str, **values: Any) -> None:
    """The row of a request as another service, or one that died, would have left it."""

    def rewrite(work: Repositories) -> None:
        row = work.solves.get(DEFAULT_PROJECT, place.rpartition("/")[2])
        for name, value in values.items():
            setattr(row, name, value)

    in_database(url, rewrite)


@pytest.mark.parametrize(("deaths", "status", "tries"), [(1, 200, 2), (2, 500, 2)])
def test_a_dead_worker_costs_one_more_try(deaths: int, status: int, tries: int) -> None:
    pool = Dying(deaths)
    with client(pool) as http:
        answer = http.post("/v1/plans", json=JOB, headers=WAIT)
        assert answer.status_code == status, answer.text
    assert len(pool.tasks) == tries


def test_a_pool_that_is_away_is_held_against_no_request() -> None:
    url, pool = ambient.fresh(), Dying(7, PoolAway)
    with client(pool, database_url=url) as http:
        answer = http.post("/v1/plans", json=JOB, headers=WAIT)
        assert answer.status_code == 200, answer.text
    found = stored(url, answer.headers["location"])
    assert (found.deaths, found.attempts, len(pool.tasks)) == (0, 1, 8)


def test_a_request_that_outlives_service_after_service_is_given_up() -> None:
    url = ambient.fresh()
    pool = FakePool(held=True)
    with capture_logs() as said:
        with client(pool, database_url=url) as http:
            place = http.post("/v1/plans", json=JOB).headers["location"]
            while not pool.tasks:
                time.sleep(0.01)
        rewritten(url, place, state="running", lease_until=0.0, lease_owner="gone", attempts=5, fence=7)
        with client(database_url=url) as http:
            answer = http.get(place, headers=WAIT)
            assert answer.status_code == 500
            assert "ended 5 times in the middle; it is not tried again" in answer.json()["detail"]
    plan_id = place.rpartition("/")[2]
    lines = {one["event"]: one for one in said}
    assert lines["unfinished requests are given back to the queue"]["plan_ids"] == [plan_id]
    taken = lines["a solve is taken over: its holder fell silent"]
    assert (taken["plan_id"], taken["holder"]) == (plan_id, "gone")
    assert (lines["solve ended"]["log_level"], lines["solve ended"]["state"]) == ("error", "failed")


def test_a_late_result_is_refused() -> None:
    """The lease passes on while a solve runs: the other's result stands."""
    url, pool = ambient.fresh(), FakePool(held=True)
    with client(pool, database_url=url) as http:
        place = http.post("/v1/plans", json=JOB).headers["location"]
        while not pool.tasks:
            time.sleep(0.01)
        fence = stored(url, place).fence
        rewritten(url, place, fence=fence + 1, lease_owner="another", lease_until=1e12)
        assert http.portal is not None
        assert pool.release is not None
        http.portal.call(pool.release.set)
        time.sleep(0.5)
        assert http.get(place).status_code == 202
        assert http.get(f"{place}/exports/deepspeed").status_code == 409, "no plan is stored"
    assert stored(url, place).lease_owner == "another"


def test_a_service_does_not_take_over_from_itself() -> None:
    """The database was away for longer than a lease, and comes back before the result is written."""
    url, pool = ambient.fresh(), FakePool(held=True)
    with client(pool, database_url=url) as http:
        place = http.post("/v1/plans", json=JOB).headers["location"]
        while not pool.tasks:
            time.sleep(0.01)
        rewritten(url, place, lease_until=0.0)
        time.sleep(0.5)
        assert stored(url, place).fence == 1
        assert http.portal is not None
        assert pool.release is not None
        http.portal.call(pool.release.set)
        assert http.get(place, headers=WAIT).status_code == 200
    assert len(pool.tasks) == 1


def test_a_result_waits_for_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    away = {"now": False, "refused": 0}
    real = Database.write

    def write(self: Database, work: Any) -> Any:
        if away["now"]:
            away["refused"] += 1
            raise StorageUnavailable("the database is not available: server at 10.0.0.1")
        return real(self, work)

    monkeypatch.setattr(Database, "write", write)
    pool = FakePool(held=True)
    with client(pool) as http:
        place = http.post("/v1/plans", json=JOB).headers["location"]
        while not pool.tasks:
            time.sleep(0.01)
        away["now"] = True
        refused = http.post("/v1/plans", json={**JOB, "objective": "memory"})
        assert (refused.status_code, refused.json()["type"]) == (503, "/problems/storage-unavailable")
        assert "away, full" in refused.json()["detail"], "what the database said is for the log"
        assert http.portal is not None
        assert pool.release is not None
        http.portal.call(pool.release.set)
        time.sleep(0.5)
        assert http.get(place).status_code == 202
        away["now"] = False
        assert http.get(place, headers=WAIT).status_code == 200
    assert away["refused"] > 1
    assert len(pool.tasks) == 1


def test_a_cancelled_request_that_nobody_works_on_any_more_ends() -> None:
    """Its service died before it could be stopped: whoever takes it over stops it."""
    url = ambient.fresh()
    with client(FakePool(held=True), database_url=url) as http:
        place = http.post("/v1/plans", json=JOB).headers["location"]
    rewritten(url, place, state="running", lease_until=0.0, cancel_requested=True)
    with client(database_url=url) as http:
        assert http.get(place, headers=WAIT).status_code == 410


def test_an_end_that_comes_together_with_work_is_an_end() -> None:
    async def run() -> None:
        settings = ServiceSettings(database_url=ambient.fresh(), poll_seconds=60)
        parts = runtime(settings, pool=FakePool(), estimates_pool=FakePool())
        await parts.start(settings)
        await asyncio.sleep(0.3)  # it waits for something to do
        parts.dispatcher.wake()
        await asyncio.sleep(0)
        async with asyncio.timeout(20):
            await parts.close()

    asyncio.run(run())


def test_no_more_is_claimed_than_the_pool_works_on() -> None:
    url, pool = ambient.fresh(), FakePool(held=True)
    pool.capacity = 2
    with client(pool, database_url=url) as http:
        places = [
            http.post("/v1/plans", json={**JOB, "objective_tolerance": n / 20}).headers["location"] for n in range(8)
        ]
        while len(pool.tasks) < 2:
            time.sleep(0.01)
        time.sleep(0.5)
        assert [stored(url, place).state for place in places] == ["running"] * 2 + ["queued"] * 6
        assert http.portal is not None
        assert pool.release is not None
        http.portal.call(pool.release.set)
        assert {http.get(place, headers=WAIT).status_code for place in places} == {200}
    assert len(pool.tasks) == 8
