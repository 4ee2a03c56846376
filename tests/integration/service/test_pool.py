"""Real solver processes: one that dies or hangs is replaced and harms nobody else."""

import asyncio
import multiprocessing
import os
import signal
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from planner.request import PlanRequest
from service.errors import Cancelled, SolveTimedOut, WorkerDied
from service.solving.spawn import SpawnPool
from service.solving.worker import Progress, Task
from tests.integration.service.targets import obedient, stillborn
from tests.unit.service.client import JOB

REQUEST = PlanRequest.model_validate(JOB)


def with_pool(
    body: Callable[[SpawnPool], Awaitable[Any]], *, processes: int = 1, seconds: float = 60.0, target: Any = obedient
) -> Any:
    async def run() -> Any:
        pool = SpawnPool(processes, seconds, target)
        await pool.start()
        try:
            return await asyncio.wait_for(body(pool), 60)
        finally:
            await pool.close()

    found = asyncio.run(run())
    assert not [p for p in multiprocessing.active_children() if p.name == "meshwright-solver"]
    return found


def task(name: str) -> Task:
    return Task(id=name, request=REQUEST)


def ignore(_: Progress) -> None:
    pass


def test_a_process_is_used_again_and_reports_progress() -> None:
    seen: list[Progress] = []

    async def body(pool: SpawnPool) -> tuple[str | None, str | None]:
        first = await pool.submit(task("pid"), seen.append)
        second = await pool.submit(task("pid"), seen.append)
        await asyncio.sleep(0)
        return first.plan_json, second.plan_json

    first, second = with_pool(body)
    assert first == second
    assert Progress(text=first) in seen


def test_a_dead_process_fails_its_own_task_and_is_replaced() -> None:
    async def body(pool: SpawnPool) -> str | None:
        with pytest.raises(WorkerDied):
            await pool.submit(task("die"), ignore)
        return (await pool.submit(task("x"), ignore)).plan_json

    assert '"id":"x"' in with_pool(body)


def test_a_process_killed_between_tasks_is_replaced() -> None:
    async def body(pool: SpawnPool) -> str | None:
        pid = int((await pool.submit(task("pid"), ignore)).plan_json or 0)
        os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(0.2)
        return (await pool.submit(task("x"), ignore)).plan_json

    assert '"id":"x"' in with_pool(body)


def test_a_solve_is_stopped_at_its_limit_while_others_go_on() -> None:
    async def body(pool: SpawnPool) -> str | None:
        slow = asyncio.create_task(pool.submit(task("sleep"), ignore))
        quick = await pool.submit(task("x"), ignore)
        with pytest.raises(SolveTimedOut):
            await slow
        return quick.plan_json

    assert '"id":"x"' in with_pool(body, processes=2, seconds=2.0)


def test_closing_ends_a_running_solve_at_once() -> None:
    async def body(pool: SpawnPool) -> None:
        running = asyncio.create_task(pool.submit(task("sleep"), ignore))
        while not pool.ready:
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.3)
        started = time.monotonic()
        await pool.close()
        with pytest.raises(WorkerDied):
            await running
        assert time.monotonic() - started < 10

    with_pool(body)


def test_a_process_that_cannot_start_fails_the_task() -> None:
    async def body(pool: SpawnPool) -> None:
        with pytest.raises(WorkerDied, match="did not start"):
            await pool.submit(task("x"), ignore)

    with_pool(body, target=stillborn)


def test_a_pool_without_a_process_is_not_ready() -> None:
    async def body(pool: SpawnPool) -> bool:
        assert not pool.ready
        with pytest.raises(WorkerDied):
            await pool.submit(task("x"), ignore)
        return pool.ready

    assert with_pool(body, target=stillborn) is False


def test_a_pool_is_ready_when_a_process_has_answered() -> None:
    async def body(pool: SpawnPool) -> bool:
        await pool.submit(task("x"), ignore)
        return pool.ready

    assert with_pool(body) is True


def test_a_closed_pool_takes_nothing() -> None:
    async def body(pool: SpawnPool) -> None:
        await pool.submit(task("x"), ignore)
        await pool.close()
        assert not pool.ready
        with pytest.raises(WorkerDied, match="shutting down"):
            await pool.submit(task("x"), ignore)

    with_pool(body)


def test_a_task_that_cannot_be_sent_fails_alone() -> None:
    class Unsendable(Task):
        def __reduce__(self) -> Any:
            raise RecursionError("maximum recursion depth exceeded")

    async def body(pool: SpawnPool) -> str | None:
        with pytest.raises(RecursionError):
            await pool.submit(Unsendable(id="x", request=REQUEST), ignore)
        return (await pool.submit(task("x"), ignore)).plan_json

    assert '"id":"x"' in with_pool(body)


def test_a_cancelled_solve_ends_at_once_and_its_process_is_replaced() -> None:
    seen: list[Progress] = []

    async def body(pool: SpawnPool) -> str | None:
        running = asyncio.create_task(pool.submit(task("sleep"), seen.append))
        while not seen:
            await asyncio.sleep(0.05)
        await pool.cancel("another")
        started = time.monotonic()
        await pool.cancel("sleep")
        with pytest.raises(Cancelled):
            await running
        assert time.monotonic() - started < 10
        return (await pool.submit(task("x"), ignore)).plan_json

    assert '"id":"x"' in with_pool(body)


def test_a_task_that_is_cancelled_in_line_gives_its_turn_to_the_next() -> None:
    seen: list[Progress] = []

    async def body(pool: SpawnPool) -> str | None:
        running = asyncio.create_task(pool.submit(task("sleep"), seen.append))
        while not seen:
            await asyncio.sleep(0.05)
        waiting = [asyncio.create_task(pool.submit(task(name), ignore)) for name in ("y", "x")]
        await asyncio.sleep(0.05)
        await pool.cancel("y")
        with pytest.raises(Cancelled):
            await waiting[0]
        await pool.cancel("sleep")
        with pytest.raises(Cancelled):
            await running
        return (await waiting[1]).plan_json

    assert '"id":"x"' in with_pool(body)
