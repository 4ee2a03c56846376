"""The application in this process, over a pool that answers what a test tells it."""

import asyncio
from collections.abc import Callable
from typing import Any

from starlette.testclient import TestClient

from service.app import create_app
from service.jobs import worker
from service.jobs.pool import OnProgress
from service.jobs.worker import Answer, Progress, Task
from service.settings import ServiceSettings
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

    async def start(self) -> None:
        self.release = asyncio.Event()
        if not self.held:
            self.release.set()

    async def run(self, task: Task, on_progress: OnProgress) -> Answer:
        self.tasks.append(task)
        on_progress(Progress(text="incumbent 1.5"))
        assert self.release is not None
        await self.release.wait()
        return self.answer(task)

    async def close(self) -> None:
        assert self.release is not None
        self.release.set()


class InlinePool(FakePool):
    """Does the work itself, in a thread."""

    async def run(self, task: Task, on_progress: OnProgress) -> Answer:
        self.tasks.append(task)
        return await asyncio.to_thread(worker.answer, task, None)


def client(pool: FakePool | None = None, estimates: FakePool | None = None, **settings: Any) -> TestClient:
    """Use it as a context manager: the pools start with it."""
    app = create_app(ServiceSettings(**settings), pool=pool or FakePool(), estimates_pool=estimates or InlinePool())
    return TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False)
