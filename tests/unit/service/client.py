"""The application in this process, over a pool that answers what a test tells it."""

import asyncio
from collections.abc import Callable
from typing import Any

from starlette.testclient import TestClient

from service.app import create_app
from service.settings import ServiceSettings
from service.solving import worker
from service.solving.pool import OnProgress, cancelled
from service.solving.worker import Answer, Progress, Task
from tests.databases import ambient
from tests.unit.executor.plans import feasible

JOB: dict[str, Any] = {
    "model": {"preset": "llama-2-7b"},
    "cluster": {"pools": [{"device": "a100-sxm-80gb", "nodes": 1, "gpus_per_node": 8}]},
    "training": {"sequence_length": 4096, "global_batch_size": 128},
}


def planned(task: Task) -> Answer:
    """A plan under the id of the task."""
    envelope = feasible().envelope.model_copy(update={"id": task.id})
    return Answer(plan_json=feasible(envelope=envelope).model_dump_json())


class FakePool:
    """Answers at once, or when `release` is set."""

    def __init__(self, answer: Callable[[Task], Answer] = planned, *, held: bool = False) -> None:
        self.answer = answer
        self.held = held
        self.tasks: list[Task] = []
        self.release: asyncio.Event | None = None
        self.ready = True
        self.capacity = 4
        self.cancelled: set[str] = set()

    async def start(self) -> None:
        self.release = asyncio.Event()
        if not self.held:
            self.release.set()

    async def submit(self, task: Task, on_progress: OnProgress) -> Answer:
        self.tasks.append(task)
        on_progress(Progress(text="throughput 1.5", objective="throughput", incumbent=1.5, bound=1.2, gap=0.2))
        assert self.release is not None
        while not self.release.is_set() and task.id not in self.cancelled:
            await asyncio.sleep(0.01)
        if task.id in self.cancelled:
            raise cancelled()
        if task.verb == "calibration":  # worked out, beside the event loop as everywhere
            return await asyncio.to_thread(worker.answer, task, lambda _: None)
        return self.answer(task)

    async def cancel(self, task_id: str) -> None:
        self.cancelled.add(task_id)

    async def close(self) -> None:
        assert self.release is not None
        self.release.set()


class InlinePool(FakePool):
    """Does the work itself, in a thread."""

    async def submit(self, task: Task, on_progress: OnProgress) -> Answer:
        self.tasks.append(task)
        return await asyncio.to_thread(worker.answer, task, lambda _: None)


def client(pool: FakePool | None = None, estimates: FakePool | None = None, **settings: Any) -> TestClient:
    """Use it as a context manager: the pools start with it."""
    usual: dict[str, Any] = {"database_url": ambient.fresh(), "poll_seconds": 0.1, "database_retry_seconds": 2.0}
    app = create_app(
        ServiceSettings(**usual | settings), pool=pool or FakePool(), estimates_pool=estimates or InlinePool()
    )
    return TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False)
