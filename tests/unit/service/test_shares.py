"""No tenant takes all: not of the queue, not of the waits, not of the messages; and a key that is gone ends at once."""

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from service.routes.audit import AuditItem
from service.security import keys, tokens
from service.storage.repositories import Repositories
from service.storage.repositories.solves import Filters
from service.storage.tables import Delivery
from service.webhooks.sender import MOST, SHARE
from tests.unit.service.client import JOB, FakePool
from tests.unit.service.tenants import World, world

pytestmark = pytest.mark.usefixtures("databases")


def job(number: int) -> dict[str, Any]:
    return {**JOB, "training": {**JOB["training"], "global_batch_size": 8 * (number + 1)}}


def stuck(**settings: Any) -> Any:
    return world(pool=FakePool(held=True), **settings)


def until(true: Any) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def revoke(found: World, who: str) -> None:
    token = tokens.read(found.tokens[who])
    assert token is not None
    key_id = token.id
    found.database.write(lambda work: keys.revoke(work, key_id))


def test_one_project_does_not_fill_the_queue() -> None:
    with stuck(max_waiting=4) as found:
        codes = [found.ask("plan", "POST", "/v1/plans", json=job(n)).status_code for n in range(3)]
        assert codes == [202, 202, 429], "half of it, as there are two projects"
        refused = found.ask("plan", "POST", "/v1/plans", json=job(2))
        assert refused.json()["type"] == "/problems/quota"
        assert refused.json()["detail"] == "2 plans of this project are waiting, each project may have 2"
        assert refused.headers["retry-after"]
        assert found.ask("plan", "POST", "/v1/plans", json=job(0)).status_code == 202, "joins what is under way"
        assert found.ask("neighbour", "POST", "/v1/plans", json=job(0)).status_code == 202
    with stuck(max_waiting=4, max_waiting_per_project=1) as found:
        assert [found.ask("plan", "POST", "/v1/plans", json=job(n)).status_code for n in range(2)] == [202, 429]


def test_a_project_with_much_waiting_does_not_starve_another() -> None:
    pool = FakePool(held=True)
    pool.capacity = 1
    with world(pool=pool) as found:
        many = [found.ask("plan", "POST", "/v1/plans", json=job(n)).headers["location"] for n in range(20)]
        until(lambda: pool.tasks)
        few = [found.ask("neighbour", "POST", "/v1/plans", json=job(n)).headers["location"] for n in range(2)]
        assert pool.release is not None
        found.http.portal.call(pool.release.set)
        for who, place in (("plan", many[-1]), ("neighbour", few[-1])):
            assert found.ask(who, "GET", place, headers={"Prefer": "wait=20"}).status_code == 200
        made = [f"/v1/plans/{task.id}" for task in pool.tasks]
    assert made[:5] == [many[0], few[0], many[1], few[1], many[2]]
    assert made[5:] == many[3:]


@pytest.mark.parametrize("path", ["", "/events"])
def test_a_revoked_key_ends_waits_and_streams(path: str) -> None:
    with stuck(poll_seconds=0.05) as found, ThreadPoolExecutor(1) as threads:
        place = found.ask("plan", "POST", "/v1/plans", json=JOB).headers["location"]
        headers = {"Prefer": "wait=30"}
        watching = threads.submit(found.ask, "plan", "GET", place + path, headers=headers)
        planning = found.http.app.state.runtime.planning
        until(lambda: planning._watching["default"] == 1)
        revoke(found, "measure")
        time.sleep(0.2)
        assert not watching.done(), "another key's end is nothing to it"
        revoke(found, "plan")
        answer = watching.result(10)
        if path:
            assert answer.text.rstrip().splitlines()[-2:] == [
                "event: refused",
                next(line for line in answer.text.splitlines() if "/problems/unauthenticated" in line),
            ]
        else:
            assert answer.status_code == 401
        assert planning._watching["default"] == 0


def test_one_project_does_not_take_all_waits() -> None:
    with stuck(poll_seconds=0.05, max_watching_per_project=1) as found, ThreadPoolExecutor(1) as threads:
        place = found.ask("plan", "POST", "/v1/plans", json=JOB).headers["location"]
        first = threads.submit(found.ask, "plan", "GET", f"{place}/events")
        until(lambda: found.http.app.state.runtime.planning._watching["default"] == 1)
        refused = found.ask("plan", "GET", f"{place}/events")
        assert (refused.status_code, refused.json()["type"]) == (429, "/problems/quota")
        started = time.monotonic()
        assert found.ask("plan", "GET", place, headers={"Prefer": "wait=30"}).status_code == 202
        assert time.monotonic() - started < 10, "a wait is a preference: answered as it is"
        found.ask("plan", "DELETE", place)
        assert "event: ended" in first.result(10).text


def test_slow_receivers_of_one_project_hold_up_no_other() -> None:
    def fill(work: Repositories) -> None:
        for project, count in (("default", 3 * MOST), (other[0], 1)):
            for number in range(count):
                row = Delivery(
                    id=f"{project[-12:]}-{number}", project_id=project, solve_id="s", url="u", state="pending"
                )
                row.next_at = 0.0 if project == "default" else 1.0
                work.deliveries.add(row)

    with world() as found:
        other = [found.database.read(lambda work: next(i for i in work.projects.names() if i != "default"))]
        found.database.write(fill)
        claimed = found.database.write(
            lambda work: [row.id for row in work.deliveries.claim(most=MOST, share=SHARE, busy=(), seconds=60)]
        )
        assert len(claimed) == SHARE + 1
        assert f"{other[0][-12:]}-0" in claimed
        more = found.database.write(
            lambda work: work.deliveries.claim(most=MOST, share=SHARE, busy={"default"}, seconds=60)
        )
        assert list(more) == []


def audited(found: World) -> list[AuditItem]:
    """Read where it is kept: asking for it would count."""
    rows = found.database.read(lambda work: work.audit.page("default", after=None, size=100)).rows
    return [AuditItem.model_validate(row) for row in rows if row.action == "authenticate"]


def test_whoever_is_turned_away_is_recorded_once_with_a_number() -> None:
    with world(requests_per_minute=30) as found:
        for who in ("forged", "revoked", "unreadable", None):
            for _ in range(3):
                assert found.ask(who, "GET", "/v1/plans").status_code == 401
        assert found.ask("forged", "DELETE", "/v1/plans/x").status_code == 401
        codes = [found.ask("measure", "GET", "/v1/devices").status_code for _ in range(8)]
        assert codes.count(429) >= 2
        until(lambda: sum(item.times for item in audited(found)) >= 13 + codes.count(429))
        items = audited(found)
    told = {(item.caller, item.status) for item in items}
    assert told == {("admin", 401), ("gone", 401), ("unknown", 401), ("measure", 429)}
    assert {item.address for item in items} == {"testclient"}
    assert len(items) < 13 + codes.count(429), "alike ones are one entry"
    assert not any("mwk_" in str(item) for item in items)


def test_a_request_that_takes_minutes_is_priced_and_not_waited_for() -> None:
    def slow(work: Repositories) -> None:
        row = work.solves.page("default", Filters(), after=None, size=1).rows[0]
        row.started_at = row.created_at - timedelta(seconds=150)
        row.ended_at = row.created_at

    with world(pool=FakePool()) as found:
        wait = {"Prefer": "wait=30"}
        assert found.ask("plan", "POST", "/v1/plans", json=job(0), headers=wait).status_code == 200
        quick = found.ask("plan", "POST", "/v1/plans", json=job(1), headers=wait)
        assert quick.status_code == 200, "what alike ones took was quick"
        found.database.write(slow)
        found.http.app.state.runtime.pool.release.clear()
        started = time.monotonic()
        answer = found.ask("plan", "POST", "/v1/plans", json=job(2), headers=wait)
        assert (answer.status_code, answer.json()["expected_seconds"]) == (202, 150.0)
        assert answer.headers["retry-after"] == "15"
        assert time.monotonic() - started < 10
        other = found.ask("neighbour", "POST", "/v1/plans", json=job(2))
        assert other.json()["expected_seconds"] is None, "what others' took is theirs"
        large = {**job(2), "cluster": {"pools": [{**JOB["cluster"]["pools"][0], "nodes": 4}]}}
        assert found.ask("plan", "POST", "/v1/plans", json=large).json()["expected_seconds"] is None
