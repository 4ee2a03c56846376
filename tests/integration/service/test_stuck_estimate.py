"""An estimate that does not end: it is stopped at its limit, and it does not keep the service from ending."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2

from service.reading import CONFIGURATION_EXAMPLE, JOB_EXAMPLE
from tests.integration.service.live import Server, served

FIRST = {**JOB_EXAMPLE, "configuration": CONFIGURATION_EXAMPLE}
ESTIMATE = {**FIRST, "constraints": {"oom_risk": 0.02}}
"""Not the first one, which is stored by then."""


def workers(server: Server) -> list[int]:
    """The processes in which the server works."""
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
    every = {child for task in Path(f"/proc/{server.process.pid}/task").iterdir() for child in _children(task)}
    return [int(pid) for pid in every | set(children) if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def _children(task: Path) -> list[str]:
    return (task / "children").read_text().split()


def ready(server: Server) -> None:
    """Wait until a solver is up."""
    deadline = time.monotonic() + 60
    while httpx2.get(f"{server.url}/readyz").status_code != 200:
        assert time.monotonic() < deadline
        time.sleep(0.1)


@contextmanager
def frozen(server: Server) -> Iterator[None]:
    """What is posted is begun and not ended."""
    ready(server)
    pids = workers(server)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def freeze(server: Server, http: httpx2.Client) -> None:
    """Stop every worker as soon as both have come up: what they are given then never ends."""
    ready(server)
    assert http.post("/v1/estimates", json=FIRST).status_code == 200
    found = workers(server)
    assert len(found) == 2
    for pid in found:
        os.kill(pid, signal.SIGSTOP)


def test_an_estimate_is_stopped_at_its_limit() -> None:
    with (
        served(environment={"MESHWRIGHT_ESTIMATE_TIMEOUT_SECONDS": "4"}) as server,
        httpx2.Client(base_url=server.url, timeout=60) as http,
    ):
        freeze(server, http)
        answer = http.post("/v1/estimates", json=ESTIMATE)
        assert answer.status_code == 504
        assert answer.json()["type"] == "/problems/solve-timed-out"
        assert answer.json()["instance"] == answer.headers["x-request-id"]
        assert http.post("/v1/estimates", json=ESTIMATE).status_code == 200


def test_sigterm_does_not_wait_for_an_estimate() -> None:
    with (
        served(environment={"MESHWRIGHT_SHUTDOWN_SECONDS": "2"}) as server,
        httpx2.Client(base_url=server.url, timeout=60) as http,
    ):
        freeze(server, http)
        asking = threading.Thread(target=_ask, args=(server.url,), daemon=True)
        asking.start()
        time.sleep(0.5)
        started = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(30)
        assert time.monotonic() - started < 15
    asking.join(10)


def _ask(url: str) -> None:
    with httpx2.Client(base_url=url, timeout=60) as http:
        try:
            http.post("/v1/estimates", json=ESTIMATE)
        except httpx2.HTTPError:
            return
