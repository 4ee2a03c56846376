"""A real Dask scheduler with real workers: progress, cancelling, death, and plans over HTTP."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from planner.plan import Plan
from planner.request import PlanRequest
from service.errors import Cancelled, SolveTimedOut, WorkerDied
from service.solving.dask_pool import DaskPool
from service.solving.worker import Progress, Task
from tests.integration.service.cluster import Cluster, cluster
from tests.integration.service.dask_targets import obedient
from tests.integration.service.live import served
from tests.integration.service.test_live import SMALL, WAIT
from tests.unit.service.client import JOB

REQUEST = PlanRequest.model_validate(JOB)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("dask"), workers=2) as found:
        yield found


def with_pool(running: Cluster, body: Callable[[DaskPool], Awaitable[Any]], *, seconds: float = 60.0) -> Any:
    async def run() -> Any:
        pool = DaskPool(running.address, seconds, obedient)
        await pool.start()
        try:
            async with asyncio.timeout(90):
                while pool.capacity < 2:
                    await asyncio.sleep(0.1)
                return await body(pool)
        finally:
            await pool.close()

    return asyncio.run(run())


def task(name: str) -> Task:
    return Task(id=name, request=REQUEST)


def ignore(_: Progress) -> None:
    pass


def test_a_worker_answers_and_tells_its_progress(running: Cluster) -> None:
    seen: list[Progress] = []

    async def body(pool: DaskPool) -> str | None:
        assert pool.ready
        answer = await pool.submit(task("x"), seen.append)
        return answer.plan_json

    assert '"id":"x"' in with_pool(running, body)
    assert Progress(text="started") in seen


def test_a_cancelled_solve_ends_for_us_and_then_for_its_worker(running: Cluster) -> None:
    seen: list[Progress] = []

    async def body(pool: DaskPool) -> None:
        endless = asyncio.create_task(pool.submit(task("endless"), seen.append))
        while not seen:
            await asyncio.sleep(0.05)
        await pool.cancel("endless")
        with pytest.raises(Cancelled):
            await endless
        # Its thread is free again when as many workers as there are answer.
        pids: set[str | None] = set()
        while len(pids) < pool.capacity:
            answers = await asyncio.gather(*(pool.submit(task(f"pid-{n}"), ignore) for n in range(4)))
            pids |= {answer.plan_json for answer in answers}

    with_pool(running, body)


def test_a_solve_that_takes_too_long_is_given_up(running: Cluster) -> None:
    async def body(pool: DaskPool) -> None:
        with pytest.raises(SolveTimedOut):
            await pool.submit(task("endless"), ignore)

    with_pool(running, body, seconds=1.0)


def test_a_dead_worker_fails_its_own_task(running: Cluster) -> None:
    async def body(pool: DaskPool) -> str | None:
        with pytest.raises(WorkerDied):
            await pool.submit(task("die"), ignore)
        return (await pool.submit(task("x"), ignore)).plan_json

    assert '"id":"x"' in with_pool(running, body)
    running.worker()


def test_plans_over_http_are_solved_by_the_cluster(running: Cluster, tmp_path: Path) -> None:
    settings = {"MESHWRIGHT_SOLVER_POOL": running.address, "MESHWRIGHT_DATABASE_URL": f"sqlite:///{tmp_path}/a.db"}
    with served(environment=settings) as server, httpx2.Client(base_url=server.url, timeout=90) as http:
        answer = http.post("/v1/plans", json=SMALL, headers=WAIT)
        assert answer.status_code == 200, answer.text
        assert Plan.from_json(answer.content).status == "optimal"
        assert http.get("/readyz").status_code == 200
