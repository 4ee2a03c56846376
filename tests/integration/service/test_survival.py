"""Killed services, killed solvers, a database that goes away, two replicas: nothing is lost, nothing is done twice."""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from service.storage.database import Database
from service.storage.repositories.solves import Filters
from service.storage.tables import DEFAULT_PROJECT, Solve
from tests.databases.fixtures import Fresh
from tests.databases.postgresql import Server as PostgreSQL
from tests.integration.service.live import Server, served
from tests.integration.service.test_live import SMALL
from tests.integration.service.test_stuck_estimate import frozen, workers
from tests.scale import scaled

LONG: dict[str, Any] = {
    "model": {"preset": "deepseek-v3"},
    "cluster": {"pools": [{"device": "h100-sxm-80gb", "nodes": 64, "gpus_per_node": 8}]},
    "training": {"sequence_length": 4096, "global_batch_size": 1024},
}
pytestmark = pytest.mark.timeout(scaled(300, 1200))
BRISK = {"MESHWRIGHT_LEASE_SECONDS": "2", "MESHWRIGHT_POLL_SECONDS": "0.2"}


def post(server: Server, count: int, start: int = 0) -> list[str]:
    """Distinct requests; where their plans will be."""
    with httpx2.Client(base_url=server.url, timeout=60) as http:
        places = []
        for n in range(start, start + count):
            training = {"sequence_length": 128 + n, "global_batch_size": 8}
            answer = http.post("/v1/plans", json={**SMALL, "training": training})
            assert answer.status_code == 202, answer.text
            places.append(answer.headers["location"])
    return places


def all_answered(server: Server, places: list[str]) -> None:
    with httpx2.Client(base_url=server.url, timeout=90) as http:
        for place in places:
            answer = http.get(place, headers={"Prefer": "wait=60"})
            assert answer.status_code == 200, (place, answer.text)


def solves(url: str) -> list[Solve]:
    database = Database(url)
    try:
        return list(database.read(lambda work: work.solves.page(DEFAULT_PROJECT, Filters(), after=None, size=500)).rows)
    finally:
        database.close()


def until(what: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 60
    while not (found := what()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def test_a_killed_service_forgets_nothing(databases: Fresh) -> None:
    url, count = databases(), scaled(6, 100)
    settings = {**BRISK, "MESHWRIGHT_DATABASE_URL": url}
    with served(environment=settings) as first:
        places = post(first, count)
        until(lambda: any(solve.state == "running" for solve in solves(url)))
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
    with served(environment=settings) as second:
        all_answered(second, places)
    found = solves(url)
    assert sorted(f"/v1/plans/{solve.id}" for solve in found) == sorted(places)
    assert {solve.state for solve in found} == {"done"}
    assert max(solve.attempts for solve in found) <= 2


def test_a_killed_solver_costs_one_more_try(sqlite_databases: Fresh) -> None:
    url = sqlite_databases()
    with served(environment={**BRISK, "MESHWRIGHT_DATABASE_URL": url}) as server:
        with httpx2.Client(base_url=server.url, timeout=60) as http:
            until(lambda: http.get("/readyz").status_code == 200)
        before = set(workers(server))
        for pid in before:
            os.kill(pid, signal.SIGSTOP)
        [place] = post(server, 1)
        until(lambda: solves(url)[0].state == "running")
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        all_answered(server, [place])
    [solve] = solves(url)
    assert (solve.deaths, solve.attempts, solve.state) == (1, 2, "done")


def test_two_replicas_solve_each_request_once(postgresql_databases: Fresh) -> None:
    url, count = postgresql_databases(), scaled(6, 100)
    settings = {"MESHWRIGHT_POLL_SECONDS": "0.1", "MESHWRIGHT_DATABASE_URL": url}
    with served(environment=settings) as one, served(environment=settings) as other:
        places = post(one, count // 2) + post(other, count - count // 2, start=count // 2)
        all_answered(one, places)
        all_answered(other, places)
        again = {place: httpx2.get(other.url + place).content for place in places}
        assert again == {place: httpx2.get(one.url + place).content for place in places}
    found = solves(url)
    assert {(solve.state, solve.attempts, solve.fence) for solve in found} == {("done", 1, 1)}


def test_a_killed_replica_leaves_its_work_to_the_other(postgresql_databases: Fresh) -> None:
    """While requests come in at the one that stays."""
    url, count = postgresql_databases(), scaled(8, 100)
    settings = {**BRISK, "MESHWRIGHT_DATABASE_URL": url}
    with served(environment=settings) as one, served(environment=settings) as other, ThreadPoolExecutor(1) as threads:
        places = post(one, count // 2)
        asked = threads.submit(post, other, count - count // 2, start=count // 2)
        until(lambda: any(f":{one.process.pid}:" in (solve.lease_owner or "") for solve in solves(url)))
        one.process.send_signal(signal.SIGKILL)
        one.process.wait()
        places += asked.result()
        all_answered(other, places)
    found = solves(url)
    assert sorted(f"/v1/plans/{solve.id}" for solve in found) == sorted(places)
    assert {(solve.state, solve.deaths) for solve in found} == {("done", 0)}
    assert all(solve.attempts == solve.fence for solve in found)
    assert sum(solve.attempts for solve in found) <= count + 1, "only what it worked on is begun again"


def insisted(server: Server, numbers: range) -> tuple[list[str], Counter[int]]:
    """Requests repeated until they are accepted; where their plans will be, and how often each status came."""
    places, statuses = [], Counter[int]()
    with httpx2.Client(base_url=server.url, timeout=60) as http:
        for n in numbers:
            body = {**SMALL, "training": {"sequence_length": 128 + n, "global_batch_size": 8}}
            while not (answer := http.post("/v1/plans", json=body, headers={"Idempotency-Key": f"{n}"})).is_success:
                statuses[answer.status_code] += 1
                time.sleep(0.1)
            places.append(answer.headers["location"])
    return places, statuses


def test_a_database_that_crashes_under_load_is_waited_for(
    postgresql_server: PostgreSQL, postgresql_databases: Fresh
) -> None:
    url, count = postgresql_databases(), scaled(15, 100)
    settings = {"MESHWRIGHT_DATABASE_URL": url, "MESHWRIGHT_POLL_SECONDS": "0.1"}
    settings["MESHWRIGHT_DATABASE_RETRY_SECONDS"] = "1"
    with served(environment=settings) as server, ThreadPoolExecutor(2) as threads:
        [first] = post(server, 1, start=800)
        asked = [threads.submit(insisted, server, range(n * count, (n + 1) * count)) for n in range(2)]
        until(lambda: len(solves(url)) > count // 2)
        postgresql_server.stop("immediate")
        try:
            with httpx2.Client(base_url=server.url, timeout=60) as http:
                assert http.get("/livez").status_code == 200
                assert http.get("/readyz").status_code == 503
                answer = http.get(first)
                assert (answer.status_code, answer.json()["type"]) == (503, "/problems/storage-unavailable")
                assert answer.headers["retry-after"]
        finally:
            postgresql_server.start()
        found = [one.result() for one in asked]
        places = [place for places, _ in found for place in places]
        assert set().union(*(statuses for _, statuses in found)) <= {503}
        all_answered(server, [first, *places])
    kept = solves(url)
    assert {solve.state for solve in kept} == {"done"}
    assert sorted(f"/v1/plans/{solve.id}" for solve in kept) == sorted([first, *places])
    assert {solve.attempts for solve in kept} <= {1, 2}


def test_what_is_open_when_a_service_ends_is_made_by_the_next(databases: Fresh) -> None:
    """A solve that runs, others that wait, a stream, a wait: all end in time, and nothing is held against them."""
    url, count = databases(), scaled(5, 50)
    settings = {"MESHWRIGHT_DATABASE_URL": url}
    with served(environment=settings) as server, ThreadPoolExecutor(2) as threads:
        with frozen(server):
            places = post(server, count)
            until(lambda: any(solve.state == "running" for solve in solves(url)))
            stream = threads.submit(httpx2.get, f"{server.url}{places[0]}/events", timeout=60)
            wait = threads.submit(httpx2.get, server.url + places[-1], headers={"Prefer": "wait=60"}, timeout=60)
            time.sleep(0.5)
            started = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            server.process.wait(40)
            assert time.monotonic() - started < 30
        assert wait.result(1).status_code == 202
        assert "event: progress" in stream.result(1).text
    assert {(solve.state, solve.attempts, solve.lease_owner) for solve in solves(url)} == {("queued", 0, None)}
    with served(environment=settings) as server:
        all_answered(server, places)
    found = solves(url)
    assert sorted(f"/v1/plans/{solve.id}" for solve in found) == sorted(places)
    assert {(solve.state, solve.attempts, solve.deaths) for solve in found} == {("done", 1, 0)}


def test_the_service_ends_in_time_though_everything_is_open(
    postgresql_server: PostgreSQL, postgresql_databases: Fresh
) -> None:
    """A solve that runs, a stream, a wait, and a database that has gone."""
    settings = {"MESHWRIGHT_DATABASE_URL": postgresql_databases()}
    with served(environment=settings) as server, ThreadPoolExecutor(2) as threads:
        place = httpx2.post(f"{server.url}/v1/plans", json=LONG).headers["location"]
        watcher = threads.submit(httpx2.get, f"{server.url}{place}/events", timeout=60)
        waiter = threads.submit(httpx2.get, server.url + place, headers={"Prefer": "wait=60"}, timeout=60)
        until(lambda: httpx2.get(server.url + place).json()["state"] == "running")
        postgresql_server.stop()
        try:
            started = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            server.process.wait(40)
            assert time.monotonic() - started < 30
            assert waiter.result(1).status_code in {202, 503}
            assert watcher.exception(1) is None or isinstance(watcher.exception(1), httpx2.TransportError)
        finally:
            postgresql_server.start()
