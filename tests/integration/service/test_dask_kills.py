"""Workers of a Dask cluster killed at random moments, its scheduler too: nothing is lost, nothing is doubled."""

import random
import time
from pathlib import Path

import pytest

from tests.databases.fixtures import Fresh
from tests.integration.service.cluster import Cluster, cluster
from tests.integration.service.live import served
from tests.integration.service.test_survival import BRISK, all_answered, post, solves, until

JOBS, WORKERS = 24, 2
pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


def harried(running: Cluster, url: str, chance: random.Random) -> None:
    """Kill a worker now and then until half of the jobs are done, and the scheduler once on the way."""
    scheduler, workers = running.processes[0], running.processes[1:]
    restarted = False
    while (done := sum(solve.state in {"done", "failed"} for solve in solves(url))) < JOBS // 2 or not restarted:
        if done >= JOBS // 4 and not restarted:
            restarted = True
            running.restart(scheduler, workers=WORKERS)
            workers = running.processes[-WORKERS:]
        time.sleep(chance.uniform(1.0, 3.0))
        victim = chance.choice([worker for worker in workers if worker.poll() is None])
        victim.kill()
        victim.wait()
        workers.append(running.worker())


def test_nothing_is_lost_and_nothing_is_doubled(sqlite_databases: Fresh, tmp_path: Path) -> None:
    url = sqlite_databases()
    with cluster(tmp_path, workers=WORKERS) as running:
        settings = {**BRISK, "MESHWRIGHT_DATABASE_URL": url, "MESHWRIGHT_SOLVER_POOL": running.address}
        with served(environment=settings) as server:
            places = post(server, JOBS)
            until(lambda: any(solve.state == "running" for solve in solves(url)))
            harried(running, url, random.Random(11))
            ended = time.monotonic() + 900
            while any(solve.state in {"queued", "running"} for solve in solves(url)):
                assert time.monotonic() < ended
                time.sleep(0.3)
            found = {f"/v1/plans/{solve.id}": solve for solve in solves(url)}
            all_answered(server, [place for place, solve in found.items() if solve.state == "done"])
    assert sorted(found) == sorted(places)
    # A request fails only when its worker was killed twice; the scheduler's end is held against none.
    assert all(solve.deaths for solve in found.values() if solve.state == "failed")
    assert sum(solve.deaths for solve in found.values()) <= len(running.processes) - 2 * WORKERS - 2
