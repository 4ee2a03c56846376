"""Solves on somebody else's Dask cluster, through distributed's `concurrent.futures` interface.

Dask cannot kill a task: a cancelled solve is asked to stop and does so at its next progress; whatever it still returns
is refused by its fence (`dispatcher`). The workers need Meshwright installed; only JSON crosses to them.
"""

import asyncio
import time
import uuid
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor, Future
from contextlib import suppress
from typing import Any, Final

import structlog

from cost_models.errors import SpecError
from service.errors import Cancelled, SolveTimedOut, WorkerDied
from service.solving import worker
from service.solving.pool import OnProgress, cancelled
from service.solving.worker import Answer, Progress, Stopped, Task

CONNECT_SECONDS: Final = 5.0
LOOK_SECONDS: Final = 2.0
"""How often the cluster is asked how many threads its workers have."""
STOP_CHECK_SECONDS: Final = 0.5
"""A worker asks the scheduler at most so often whether it should stop."""
_log = structlog.get_logger(__name__)


class DaskPool:
    """One solve for each thread of the cluster's workers."""

    def __init__(self, address: str, timeout_seconds: float, work: Callable[[str, str], str] | None = None) -> None:
        """Nothing is connected yet. Each solve may take `timeout_seconds` from when a worker has begun."""
        try:
            import distributed
        except ImportError as error:
            raise SpecError("solver_pool is a Dask cluster: pip install 'meshwright[dask]'") from error
        self._distributed: Any = distributed
        self._address = address.replace("dask://", "tcp://")
        self._timeout = timeout_seconds
        self._work = work or solve
        self._client: Any = None
        self._executor: Executor | None = None
        self._threads = 0
        self._looking: asyncio.Task[None] | None = None
        self._running: dict[str, str] = {}
        """Task id -> the name of its stop signal."""
        self._closed = False

    @property
    def ready(self) -> bool:
        """Whether a worker is connected."""
        return self._threads > 0

    @property
    def capacity(self) -> int:
        """Threads of all workers."""
        return self._threads

    async def start(self) -> None:
        """Connect, and again whenever the scheduler has been away."""
        self._looking = asyncio.create_task(self._look())

    async def submit(self, task: Task, on_progress: OnProgress) -> Answer:
        """Solve `task` on a worker."""
        client, executor = self._client, self._executor
        if client is None or executor is None or self._closed:
            raise WorkerDied("the Dask scheduler is not connected")
        loop, topic = asyncio.get_running_loop(), f"meshwright-{uuid.uuid4().hex}"
        started: list[float] = []

        def hear(event: tuple[float, str]) -> None:
            if not started:
                started.append(time.monotonic())
            loop.call_soon_threadsafe(on_progress, Progress.model_validate_json(event[1]))

        self._running[task.id] = topic
        try:
            await asyncio.to_thread(client.subscribe_topic, topic, hear)
            future = await asyncio.to_thread(executor.submit, self._work, task.model_dump_json(), topic)
            return Answer.model_validate_json(await self._result(future, task.id, started))
        finally:
            self._running.pop(task.id, None)
            with suppress(Exception):
                await asyncio.to_thread(client.unsubscribe_topic, topic)

    async def cancel(self, task_id: str) -> None:
        """Ask the worker to stop; the task ends for us at once."""
        topic = self._running.pop(task_id, None)
        if topic is not None:
            await self._signal(topic)

    async def close(self) -> None:
        """Ask everything to stop, and disconnect."""
        self._closed = True
        self._threads = 0
        for task_id in list(self._running):
            await self.cancel(task_id)
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        client, self._client = self._client, None
        if client is not None:
            with suppress(Exception):
                await asyncio.to_thread(client.close, timeout=CONNECT_SECONDS)

    async def _result(self, future: "Future[str]", task_id: str, started: list[float]) -> str:
        """What the worker returns, unless the task is cancelled, takes too long, or its cluster goes away."""
        topic, waiting = self._running[task_id], asyncio.wrap_future(future)
        while True:
            done, _ = await asyncio.wait((waiting,), timeout=0.2)
            if done:
                break
            if task_id not in self._running:
                waiting.cancel()
                raise cancelled()
            if started and time.monotonic() - started[0] > self._timeout:
                await self._signal(topic)
                waiting.cancel()
                raise SolveTimedOut("the solve took longer than this installation allows and was asked to stop")
        try:
            return waiting.result()
        except (CancelledError, asyncio.CancelledError, OSError) as error:
            if task_id not in self._running:
                raise cancelled() from error
            raise WorkerDied("the Dask scheduler went away in the middle of the solve") from error
        except self._distributed.KilledWorker as error:
            raise WorkerDied("the Dask workers that took the solve ended in the middle of it") from error
        except Stopped as error:
            raise Cancelled("the solve was stopped") from error

    async def _signal(self, topic: str) -> None:
        """Set the stop signal that the worker asks for."""
        client: Any = self._client
        with suppress(Exception):  # without a scheduler there is nobody to tell; the fence refuses the result
            await asyncio.to_thread(lambda: self._distributed.Event(topic, client=client).set())

    async def _look(self) -> None:
        """Keep connected, and know how much work the cluster takes."""
        while True:
            try:
                if self._client is None or self._client.status != "running":
                    await self._connect()
                found = await asyncio.wait_for(asyncio.to_thread(self._client.nthreads), CONNECT_SECONDS)
                self._threads = 0 if self._closed else sum(found.values())
            except Exception as error:
                if self._threads:
                    _log.warning("the Dask cluster is away", error=f"{type(error).__name__}: {error}")
                self._threads = 0
            await asyncio.sleep(LOOK_SECONDS)

    async def _connect(self) -> None:
        old, self._client = self._client, None
        if old is not None:
            with suppress(Exception):
                await asyncio.to_thread(old.close, timeout=1.0)

        def connect() -> Any:
            return self._distributed.Client(
                self._address, timeout=CONNECT_SECONDS, set_as_default=False, name="meshwright"
            )

        self._client = await asyncio.to_thread(connect)
        self._executor = self._client.get_executor(pure=False)


def solve(task_json: str, topic: str) -> str:
    """Runs on a worker: the answer to a task, told on the way under `topic`."""
    return worker.answer(Task.model_validate_json(task_json), teller(topic)).model_dump_json()


def teller(topic: str) -> worker.Tell:
    """Tells progress to the service, and ends the solve when it is asked to.

    Raises (when told):
        Stopped: the service has set the stop signal.
    """
    import distributed

    here = distributed.get_worker()
    stop: Any = distributed.Event(topic, client=distributed.get_client())  # type: ignore[no-untyped-call]
    asked = [0.0]

    def tell(progress: Progress) -> None:
        here.log_event(topic, progress.model_dump_json())
        if time.monotonic() - asked[0] >= STOP_CHECK_SECONDS:
            asked[0] = time.monotonic()
            if stop.is_set():
                raise Stopped

    tell(Progress(text="started"))
    return tell
