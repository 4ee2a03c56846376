"""Kill -9 at random moments, of the service and of its solvers: nothing is lost, nothing is doubled."""

import os
import random
import signal
import time
from contextlib import suppress

import httpx2
import pytest

from service.storage.database import Database
from tests.databases.fixtures import Fresh
from tests.integration.service.live import Server, served
from tests.integration.service.test_live import SMALL
from tests.integration.service.test_stuck_estimate import workers
from tests.integration.service.test_survival import BRISK, solves
from tests.scale import scaled

JOBS, ROUNDS = scaled(50, 500), scaled(1, 12)
MOST_SECONDS = scaled(120, 1200)
pytestmark = pytest.mark.timeout(scaled(300, 2 * MOST_SECONDS))


def asked(server: Server, number: int) -> str | None:
    """Where the plan will be; None when the service died before it said so."""
    training = {"sequence_length": 128 + number, "global_batch_size": 8}
    with httpx2.Client(base_url=server.url, timeout=20) as http:
        try:
            answer = http.post(
                "/v1/plans", json={**SMALL, "training": training}, headers={"Idempotency-Key": f"job-{number}"}
            )
        except httpx2.HTTPError:
            return None
    assert answer.status_code in {200, 202}, answer.text
    return str(answer.headers["location"])


def test_nothing_is_lost_and_nothing_is_doubled(databases: Fresh) -> None:
    url, chance = databases(), random.Random(7)
    settings = {**BRISK, "MESHWRIGHT_DATABASE_URL": url, "MESHWRIGHT_SOLVER_PROCESSES": "2"}
    settings["MESHWRIGHT_MAX_WAITING"] = str(2 * JOBS)
    open_jobs, promised = list(range(JOBS)), dict[int, str]()
    for round_ in range(ROUNDS + 1):
        last = round_ == ROUNDS
        with served(environment=settings) as server:
            until = time.monotonic() + chance.uniform(0.5, 4.0)
            while open_jobs and (last or time.monotonic() < until):
                number = open_jobs[0]
                place = asked(server, number)
                if place is None:
                    break
                promised[open_jobs.pop(0)] = place
                if chance.random() < 0.1 and not last:
                    with suppress(ProcessLookupError, FileNotFoundError):
                        os.kill(chance.choice(workers(server)), signal.SIGKILL)
            if not last:
                time.sleep(max(0.0, until - time.monotonic()))
                server.process.send_signal(signal.SIGKILL)
                server.process.wait()
                continue
            ended = time.monotonic() + MOST_SECONDS
            while any(solve.state in {"queued", "running"} for solve in solves(url)):
                assert time.monotonic() < ended
                time.sleep(0.3)
    found = {f"/v1/plans/{solve.id}": solve for solve in solves(url)}
    assert set(promised) == set(range(JOBS))
    assert set(promised.values()) == set(found), "every promise is a row, and every row one promise"
    assert len(set(promised.values())) == JOBS
    database = Database(url)
    plans = database.read(lambda work: {row.id for row in work.plans.of("default", [s.id for s in found.values()])})
    database.close()
    assert plans == {solve.id for solve in found.values() if solve.state == "done"}
    assert {solve.state for solve in found.values()} <= {"done", "failed"}
    # A request fails only when its solver was killed twice.
    assert all(solve.deaths or solve.attempts > 5 for solve in found.values() if solve.state == "failed")
