"""A solve that is asked to stop says so until it has; and a request is as old in every answer."""

import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.databases import ambient
from tests.unit.service.client import JOB, FakePool, client
from tests.unit.service.test_dispatch import in_database, rewritten, stored

pytestmark = pytest.mark.usefixtures("databases")
WAIT = {"Prefer": "wait=20"}


class Slow(FakePool):
    """Stops when it is let go, as a worker of another machine does."""

    def __init__(self) -> None:
        super().__init__(held=True)
        self.asked: list[str] = []

    async def cancel(self, task_id: str) -> None:
        self.asked.append(task_id)

    def let_go(self) -> None:
        self.cancelled.update(self.asked)


def states(http: TestClient, verb: str) -> dict[str, list[str]]:
    """What lists say, by the state that is asked for."""
    known = ("queued", "running", "cancelling", "cancelled", "done")
    found = {state: http.get(f"/v1/{verb}s", params={"state": state}).json()["items"] for state in known}
    return {state: [item["state"] for item in items] for state, items in found.items() if items}


def told(http: TestClient, place: str) -> list[tuple[str, Any]]:
    """The events of an answer that has ended."""
    lines = [line for line in http.get(f"{place}/events").text.splitlines() if line]
    return [(name[7:], json.loads(data[6:])) for name, data in zip(lines[::2], lines[1::2], strict=True)]


@pytest.mark.parametrize("verb", ["plan", "frontier", "ladder"])
def test_a_running_solve_is_cancelling_until_it_has_stopped(verb: str) -> None:
    pool = Slow()
    with client(pool) as http:
        place = http.post(f"/v1/{verb}s", json=JOB).headers["location"]
        while not pool.tasks:
            http.get(place)
        assert states(http, verb) == {"running": ["running"]}
        for _ in range(2):
            assert http.delete(place).json()["state"] == "cancelling"
        pending = http.get(place)
        assert (pending.status_code, pending.json()["state"], pending.json()["progress"]) == (202, "cancelling", None)
        assert states(http, verb) == {"cancelling": ["cancelling"]}
        assert http.post(f"/v1/{verb}s", json=JOB).json()["state"] == "cancelling", "an equal request joins it"
        pool.let_go()
        assert http.get(place, headers=WAIT).status_code == 410
        assert states(http, verb) == {"cancelled": ["cancelled"]}
        [(event, data)] = told(http, place)
        assert (event, data["state"], data["created_at"]) == ("ended", "cancelled", pending.json()["created_at"])


def test_a_waiting_solve_is_cancelled_at_once() -> None:
    pool = FakePool(held=True)
    pool.capacity = 0
    with client(pool) as http:
        place = http.post("/v1/plans", json=JOB).headers["location"]
        assert http.delete(place).json()["state"] == "cancelled"


def test_one_that_was_given_back_stays_cancelling() -> None:
    url, pool = ambient.fresh(), FakePool(held=True)
    with client(pool, database_url=url) as http:
        place = http.post("/v1/plans", json=JOB).headers["location"]
    rewritten(url, place, state="queued", cancel_requested=True)
    pool = FakePool(held=True)
    pool.capacity = 0
    with client(pool, database_url=url) as http:
        assert http.get(place).json()["state"] == "cancelling"
        assert states(http, "plan") == {"cancelling": ["cancelling"]}


def test_a_request_is_as_old_in_every_answer() -> None:
    url, pool = ambient.fresh(), FakePool(held=True)
    with client(pool, database_url=url) as http:
        asked = http.post("/v1/plans", json=JOB)
        place, created = asked.headers["location"], asked.json()["created_at"]
        assert http.portal is not None
        assert pool.release is not None
        http.portal.call(pool.release.set)
        assert http.get(place, headers=WAIT).status_code == 200
        assert [data["created_at"] for _, data in told(http, place)] == [created]
        assert [item["created_at"] for item in http.get("/v1/plans").json()["items"]] == [created]
    row = in_database(url, lambda work: work.plans.get("default", place.rpartition("/")[2]))
    assert row is not None
    assert row.created_at == stored(url, place).created_at
