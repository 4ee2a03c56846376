"""The dispatcher: one more try for a dead worker, late results refused, an absent database waited for."""

import asyncio
import time
from typing import Any

import pytest

from service.errors import StorageUnavailable, WorkerDied
from service.solving.pool import OnProgress
from service.solving.worker import Answer, Task
from service.storage.database import Database
from service.storage.tables import DEFAULT_PROJECT, Solve
from tests.databases import ambient
from tests.unit.service.client import JOB, FakePool, client, planned

pytestmark = pytest.mark.usefixtures("databases")
WAIT = {"Prefer": "wait=20"}


class Dying(FakePool):
    """Its first workers die."""

    def __init__(self, deaths: int) -> None:
        super().__init__()
        self.deaths = deaths

    async def submit(self, task: Task, on_progress: OnProgress) -> Answer:
        self.tasks.append(task)
        if len(self.tasks) <= self.deaths:
            raise WorkerDied("the solver process ended in the middle of the solve")
        return self.answer(task)


def stored(url: str, plan_id: str) -> Solve:
    database = Database(url)
    try:
        row = database.read(lambda work: work.solves.get(DEFAULT_PROJECT, plan_id))
    finally:
        database.close()
    assert row is not None
    return row


@pytest.mark.parametrize(("deaths", "status", "tries"), [(1, 200, 2), (2, 500, 2)])
def test_a_dead_worker_costs_one_more_try(deaths: int, status: int, tries: int) -> None:
    pool = Dying(deaths)
    with client(pool) as http:
        answer = http.post("/v1/plans", json=JOB, headers=WAIT)
        assert answer.status_code == status, answer.text
    assert len(pool.tasks) == tries


def test_a_request_that_outlives_service_after_service_is_given_up() -> None:
    url = ambient.fresh()
    with client(FakePool(held=True), database_url=url) as http:
        place = http.post("/v1/plans", json=JOB).headers["location"]
    database = Database(url)

    def silent(work: Any) -> None:
        row = work.solves.get(DEFAULT_PROJECT, place.rpartition("/")[2])
        row.state, row.lease_until, row.attempts, row.fence = "running", 0.0, 5, 7

    database.write(silent)
    database.close()
    with client(database_url=url) as http:
        answer = http.get(place, headers=WAIT)
        assert answer.status_code == 500
        assert "ended 5 times in the middle; it is not tried again" in answer.json()["detail"]


def test_a_late_result_is_refused() -> None:
    """The lease passes on while a solve runs: the other's result stands."""
    url, pool = ambient.fresh(), FakePool(held=True)
    with client(pool, database_url=url) as http:
        place = http.post("/v1/plans", json=JOB).headers["location"]
        while not pool.tasks:
            time.sleep(0.01)
        database = Database(url)

        def overtaken(work: Any) -> None:
            row = work.solves.get(DEFAULT_PROJECT, place.rpartition("/")[2])
            row.fence, row.lease_owner, row.lease_until = row.fence + 1, "another", 1e12

        database.write(overtaken)
        assert http.portal is not None
        assert pool.release is not None
        http.portal.call(pool.release.set)
        time.sleep(0.5)
        assert http.get(place).status_code == 202
        assert database.read(lambda work: work.plans.content(DEFAULT_PROJECT, place.rpartition("/")[2])) is None
        database.close()
    assert stored(url, place.rpartition("/")[2]).lease_owner == "another"


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
    database = Database(url)

    def silent(work: Any) -> None:
        row = work.solves.get(DEFAULT_PROJECT, place.rpartition("/")[2])
        row.state, row.lease_until, row.cancel_requested = "running", 0.0, True

    database.write(silent)
    database.close()
    with client(database_url=url) as http:
        assert http.get(place, headers=WAIT).status_code == 410


def test_no_more_is_claimed_than_the_pool_works_on() -> None:
    class Narrow(FakePool):
        most, now = 0, 0

        async def submit(self, task: Task, on_progress: OnProgress) -> Answer:
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(0.02)
            self.now -= 1
            return planned(task)

    pool = Narrow()
    pool.capacity = 2
    with client(pool) as http:
        places = [
            http.post("/v1/plans", json={**JOB, "objective_tolerance": n / 20}).headers["location"] for n in range(8)
        ]
        assert {http.get(place, headers=WAIT).status_code for place in places} == {200}
    assert pool.most == 2
