"""Writes that fail under a service at work, as on a full disk; then it is killed: nothing accepted is lost."""

import resource
import signal
import sqlite3
import time
from pathlib import Path

import httpx2

from tests.databases.fixtures import Fresh
from tests.integration.service.live import Server, served
from tests.integration.service.test_live import SMALL
from tests.integration.service.test_survival import BRISK, all_answered, post, solves


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
