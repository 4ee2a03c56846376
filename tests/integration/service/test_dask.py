"""A real Dask scheduler with real workers: progress, cancelling, death, and plans over HTTP."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from planner.plan import Plan
from planner.request import PlanRequest
from service.errors import Cancelled, SolveTimedOut, WorkerDied
from service.solving.dask_pool import DaskPool
from service.solving.worker import Answer, Progress, Task, answer
from tests.integration.service.cluster import Cluster, cluster
from tests.integration.service.dask_targets import obedient, telling
from tests.integration.service.live import served
from tests.integration.service.test_live import SMALL, WAIT
from tests.unit.service.client import JOB

REQUEST = PlanRequest.model_validate(JOB)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("dask"), workers=2) as found:
        yield found


def with_pool(
    running: Cluster,
    body: Callable[[DaskPool], Awaitable[Any]],
    *,
    seconds: float = 60.0,
    work: Callable[[str, str], str] = obedient,
) -> Any:
    async def run() -> Any:
        pool = DaskPool(running.address, seconds, work)
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


RUNGS = {"verb": "ladder", "options": {"low": 1, "high": 4}}
FRONT = {"verb": "frontier", "options": {"axes": ["time", "gpus"], "points": 5}}
FOUR = PlanRequest.model_validate({**SMALL, "cluster": {"pools": [{"device": "a100-sxm-80gb", "gpus_per_node": 4}]}})


@pytest.mark.parametrize("what", [RUNGS, FRONT], ids=["ladder", "frontier"])
def test_points_are_tasks_of_their_own(running: Cluster, what: dict[str, Any]) -> None:
    seen: list[Progress] = []
    whole = Task.model_validate({"id": "x", "request": FOUR, **what})

    async def body(pool: DaskPool) -> Answer:
        return await pool.submit(whole, seen.append)

    made = with_pool(running, body, work=telling)
    parts = {progress.text.split()[1] for progress in seen if progress.text.startswith("part ")}
    assert parts == {"x/1", "x/2", "x/3", "x/4"}
    assert without_envelope(made) == without_envelope(answer(whole, ignore))


def without_envelope(found: Answer) -> dict[str, Any]:
    assert found.plan_json is not None, found.problem
    content: dict[str, Any] = json.loads(found.plan_json)
    assert content.pop("envelope")["id"] == "x"
    return content


def test_a_cancelled_ladder_stops_all_of_its_parts(running: Cluster) -> None:
    seen: list[Progress] = []
    endless = Task.model_validate({"id": "endless", "request": FOUR, **RUNGS})

    async def body(pool: DaskPool) -> None:
        asked = asyncio.create_task(pool.submit(endless, seen.append))
        while len(seen) < 3:
            await asyncio.sleep(0.05)
        await pool.cancel("endless")
        with pytest.raises(Cancelled):
            await asked
        answers = await asyncio.gather(*(pool.submit(task(f"pid-{n}"), ignore) for n in range(4)))
        assert all(found.plan_json for found in answers)

    with_pool(running, body)


def test_a_frontier_that_cannot_be_is_a_problem(running: Cluster) -> None:
    async def body(pool: DaskPool) -> Answer:
        options = {"axes": ["time", "cost"], "points": 5}
        return await pool.submit(Task(id="x", request=FOUR, verb="frontier", options=options), ignore)

    found = with_pool(running, body)
    assert found.problem is not None
    assert "price_per_gpu_hour" in found.problem.detail


def test_plans_over_http_are_solved_by_the_cluster(running: Cluster, tmp_path: Path) -> None:
    settings = {"MESHWRIGHT_SOLVER_POOL": running.address, "MESHWRIGHT_DATABASE_URL": f"sqlite:///{tmp_path}/a.db"}
    with served(environment=settings) as server, httpx2.Client(base_url=server.url, timeout=90) as http:
        made = http.post("/v1/plans", json=SMALL, headers=WAIT)
        assert made.status_code == 200, made.text
        assert Plan.from_json(made.content).status == "optimal"
        assert http.post("/v1/ladders", json=SMALL, headers=WAIT).status_code == 200
        assert http.get("/readyz").status_code == 200
