"""A disk that is full while a service is at work, and writes that fail half-way: nothing accepted is lost."""

import resource
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from tests.databases import postgresql
from tests.databases.fixtures import Fresh
from tests.integration.service.file_systems import NOBODY, SmallDisk, as_user, small_disk
from tests.integration.service.live import Server, served
from tests.integration.service.test_live import SMALL
from tests.integration.service.test_stuck_estimate import frozen
from tests.integration.service.test_survival import BRISK, all_answered, post, solves, until


def limited(server: Server, size: int) -> None:
    """No file of the server grows beyond `size`: SQLite's writes then fail half-way. [bytes]"""
    _, most = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (size, most))


def test_writes_that_fail_lose_nothing(sqlite_databases: Fresh) -> None:
    url = sqlite_databases()
    file = Path(url.removeprefix("sqlite:///"))
    settings = {**BRISK, "MESHWRIGHT_DATABASE_URL": url}
    with served(environment=settings) as server, httpx2.Client(base_url=server.url, timeout=60) as http:
        places = post(server, 3)
        log = file.with_name(file.name + "-wal")
        limited(server, log.stat().st_size + 4096)
        deadline = time.monotonic() + 60
        number = 100
        while (answer := http.post("/v1/plans", json=another(number))).is_success:
            places.append(answer.headers["location"])
            number += 1
            assert time.monotonic() < deadline, "no write has failed"
        assert (answer.status_code, answer.json()["type"]) == (503, "/problems/storage-unavailable"), answer.text
        assert http.get("/livez").status_code == 200
        assert http.get("/v1/plans").status_code == 200
        limited(server, resource.RLIM_INFINITY)
        places += post(server, 1, start=200)
        all_answered(server, places)
        limited(server, log.stat().st_size)
        assert http.post("/v1/plans", json=another(300)).status_code in {202, 503}
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
    with sqlite3.connect(file) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    with served(environment=settings) as server:
        all_answered(server, places)
    assert set(places) <= {f"/v1/plans/{solve.id}" for solve in solves(url) if solve.state == "done"}


def another(number: int) -> dict[str, object]:
    return {**SMALL, "training": {"sequence_length": 128 + number, "global_batch_size": 8}}


@contextmanager
def database_on(disk: SmallDisk, kind: str) -> Iterator[str]:
    """The address of a database whose tables lie on the disk."""
    if kind == "sqlite":
        yield f"sqlite:///{disk.folder}/plans.db"
        return
    with postgresql.server(disk.folder / "data", (*disk.inside, *as_user(NOBODY))) as found:
        yield found.url("postgres")


def begun(server: Server, count: int, start: int) -> list[str]:
    """Requests, of which one is worked on."""
    places = post(server, count, start=start)
    until(lambda: any(httpx2.get(server.url + place).json()["state"] == "running" for place in places))
    return places


def says_that_it_is_full(server: Server) -> list[str]:
    """Posts until there is no room; what was accepted before."""
    places, numbers = list[str](), iter(range(300, 400))
    with httpx2.Client(base_url=server.url, timeout=60) as http:
        while (answer := http.post("/v1/plans", json=another(next(numbers)))).is_success:
            places.append(answer.headers["location"])
        assert (answer.status_code, answer.json()["type"]) == (503, "/problems/storage-unavailable"), answer.text
        assert answer.elapsed.total_seconds() < 5, "waiting makes no room"
        assert http.get("/livez").status_code == 200
        assert http.get("/v1/plans").status_code == 200
    return places


@pytest.mark.long
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_plan_that_finds_no_room_waits_for_it(kind: str, tmp_path: Path) -> None:
    """Twice: under a service that goes on, and under one that is killed and starts again on the full disk."""
    size = {"sqlite": 4, "postgresql": 96}[kind] * 2**20
    with small_disk(tmp_path, size) as disk, database_on(disk, kind) as url:
        settings = {**BRISK, "MESHWRIGHT_DATABASE_URL": url, "MESHWRIGHT_DATABASE_UPGRADE": "always"}
        with served(environment=settings, behind=disk.inside) as server:
            with frozen(server):
                places = begun(server, 3, start=0)
                disk.fill()
            until(lambda: any("a result waits for the database" in line for line in server.lines))
            places += says_that_it_is_full(server)
            time.sleep(2 * float(BRISK["MESHWRIGHT_LEASE_SECONDS"]))
            disk.free()
            all_answered(server, places)
            with frozen(server):
                places += begun(server, 2, start=10)
                disk.fill()
                server.process.send_signal(signal.SIGKILL)
                server.process.wait()
        with served(environment=settings, behind=disk.inside) as server:
            assert httpx2.get(server.url + places[0]).status_code == 200
            disk.free()
            all_answered(server, places)
            listed = httpx2.get(f"{server.url}/v1/plans?page_size=200").json()["items"]
            assert sorted(f"/v1/plans/{one['id']}" for one in listed) == sorted(set(places))
        if kind == "sqlite":
            with sqlite3.connect(disk.seen(tmp_path / "plans.db")) as connection:
                assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            connection.close()
