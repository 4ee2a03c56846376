"""Solves on somebody else's Dask cluster, through distributed's `concurrent.futures` interface.

Dask cannot kill a task: a cancelled solve is asked to stop and does so at its next progress; whatever it still returns
is refused by its fence (`dispatcher`). The workers need Meshwright installed; only JSON crosses to them.
"""

import asyncio
import time
import uuid
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor
from contextlib import suppress
from typing import Any, Final

import structlog

from cost_models.errors import MeshwrightError, SpecError
from service.errors import PoolAway, ServiceError, SolveTimedOut, WorkerDied
from service.problems import problem_of
from service.solving import worker
from service.solving.pool import OnProgress, cancelled
from service.solving.splitting import join, split
from service.solving.worker import Answer, Progress, Stopped, Task

CONNECT_SECONDS: Final = 5.0
LOOK_SECONDS: Final = 2.0
"""How often the cluster is asked how many threads its workers have."""
LISTEN_SECONDS: Final = 0.2
"""How soon a task that is cancelled, or takes too long, ends for us."""
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
        """Solve `task` on a worker; one that falls into parts on as many workers as there are."""
        client, executor = self._client, self._executor
        if client is None or executor is None or self._closed:
            raise self._away("the Dask scheduler is not connected")
        loop, solve = asyncio.get_running_loop(), _Solve(f"meshwright-{uuid.uuid4().hex}")

        def hear(event: tuple[float, str]) -> None:
            solve.began()
            loop.call_soon_threadsafe(on_progress, Progress.model_validate_json(event[1]))

        self._running[task.id] = solve.topic
        try:
            parts = await asyncio.to_thread(split, task)
            await asyncio.to_thread(client.subscribe_topic, solve.topic, hear)
            for part in parts or (task,):
                text = part.model_dump_json()
                future = await asyncio.to_thread(executor.submit, self._work, text, solve.topic)
                solve.futures.append(asyncio.wrap_future(future))
            found = [Answer.model_validate_json(text) for text in await self._results(solve, task.id)]
            return await asyncio.to_thread(join, task, found) if parts else found[0]
        except ServiceError:
            raise
        except MeshwrightError as error:  # of the split: as a worker would have answered
            return Answer(problem=problem_of(error))
        finally:
            self._running.pop(task.id, None)
            with suppress(Exception):
                await asyncio.to_thread(client.unsubscribe_topic, solve.topic)

    async def cancel(self, task_id: str) -> None:
        """Ask the workers to stop; the task ends for us at once."""
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

    async def _results(self, solve: "_Solve", task_id: str) -> list[str]:
        """What the workers return, unless the task is cancelled or takes too long, or one of them fails."""
        try:
            while True:
                done, left = await asyncio.wait(
                    solve.futures, timeout=LISTEN_SECONDS, return_when=asyncio.FIRST_EXCEPTION
                )
                if task_id not in self._running:
                    raise cancelled()
                for future in done:
                    self._result(future)
                if not left:
                    return [self._result(future) for future in solve.futures]
                if solve.seconds > self._timeout:
                    raise SolveTimedOut("the solve took longer than this installation allows and was asked to stop")
        finally:
            if any(not future.done() for future in solve.futures):
                await self._signal(solve.topic)
            for future in solve.futures:
                future.cancel()

    def _result(self, future: "asyncio.Future[str]") -> str:
        """What a worker returned, or why it did not."""
        try:
            return future.result()
        except (CancelledError, asyncio.CancelledError, OSError) as error:
            raise self._away("the Dask scheduler went away in the middle of the solve") from error
        except self._distributed.KilledWorker as error:
            raise WorkerDied("the Dask workers that took the solve ended in the middle of it") from error
        except Stopped as error:
            raise cancelled() from error

    def _away(self, why: str) -> PoolAway:
        """Nothing more is claimed until the scheduler has been seen again."""
        self._threads = 0
        return PoolAway(why)

    async def _signal(self, topic: str) -> None:
        """Set the stop signal that the workers ask for."""
        client: Any = self._client
        with suppress(Exception):  # without a scheduler there is nobody to tell; the fence refuses the result
            await asyncio.to_thread(lambda: self._distributed.Event(topic, client=client).set())

    async def _look(self) -> None:
        """Keep connected, and know how much work the cluster takes."""
        while True:
            try:
                if self._client is None or self._client.status != "running":
                    await self._connect()
                async with asyncio.timeout(CONNECT_SECONDS):  # wait_for of Python 3.11 may swallow the end
                    found = await asyncio.to_thread(self._client.nthreads)
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


class _Solve:
    """One task on the cluster: its futures, one for each part, and the topic under which their workers speak."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.futures: list[asyncio.Future[str]] = []
        self._started: float | None = None

    def began(self) -> None:
        """A worker was heard."""
        if self._started is None:
            self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        """Since a worker began."""
        return 0.0 if self._started is None else time.monotonic() - self._started


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
