"""A pool of spawned solver processes. One can be killed without the others noticing."""

import asyncio
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Final

import structlog

from service.errors import SolveTimedOut, WorkerDied
from service.solving import worker
from service.solving.pool import OnProgress, cancelled
from service.solving.worker import Answer, Progress, Task

START_SECONDS: Final = 120.0
"""Longest time a process may take to load."""
_log = structlog.get_logger(__name__)


class _Lane:
    """One place to work: a process that is started when needed and replaced when it ends. Its methods block."""

    def __init__(self, target: Callable[[Connection], None]) -> None:
        self._target = target
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None
        self._closed = False
        self._stopped: str | None = None
        self.task_id: str | None = None
        """What it works on."""
        self.answered = False
        """Whether a process of this lane has ever said that it is ready."""

    def warm(self) -> None:
        """Start the process and wait until it has loaded what a solve needs."""
        self._running(time.monotonic() + START_SECONDS)

    def call(self, task: Task, on_progress: OnProgress, seconds: float) -> Answer:
        """Solve `task` in the process."""
        self.task_id = task.id
        try:
            return self._call(task, on_progress, seconds)
        except WorkerDied:
            if self._stopped == task.id:
                raise cancelled() from None
            raise
        finally:
            self.task_id = self._stopped = None

    def cancel(self, task_id: str) -> None:
        """Kill the process if it works on this task."""
        if self.task_id == task_id:
            self._stopped = task_id
            self.stop()

    def _call(self, task: Task, on_progress: OnProgress, seconds: float) -> Answer:
        pipe = self._running(time.monotonic() + START_SECONDS)
        deadline = time.monotonic() + seconds
        try:
            pipe.send(task)
            on_progress(Progress(text="started"))
            while True:
                kind, content = _receive(pipe, deadline)
                if kind == "answer":
                    found: Answer = content
                    return found
                on_progress(content)
        except (EOFError, OSError) as error:
            self.stop()
            raise WorkerDied("the solver process ended in the middle of the solve") from error
        except BaseException:  # the pipe may hold half a message: this process takes no other task
            self.stop()
            raise

    def stop(self, *, closed: bool = False) -> None:
        """Kill the process; `closed`: for good."""
        self._closed = self._closed or closed
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.join()

    def _running(self, deadline: float) -> Connection:
        """The pipe of a process that is ready."""
        if self._process is not None and self._pipe is not None and self._process.is_alive():
            return self._pipe
        if self._closed:
            raise WorkerDied("the service is shutting down")
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=self._target, args=(theirs,), name="meshwright-solver", daemon=True)
        process.start()
        theirs.close()
        self._process, self._pipe = process, ours
        try:
            _receive(ours, deadline)
        except (EOFError, OSError, SolveTimedOut) as error:
            self.stop()
            raise WorkerDied("the solver process did not start") from error
        self.answered = True
        return ours


def _receive(pipe: Connection, deadline: float) -> worker.Message:
    if not pipe.poll(max(0.0, deadline - time.monotonic())):
        raise SolveTimedOut("the solve took longer than this installation allows and was stopped")
    message: worker.Message = pipe.recv()
    return message


class SpawnPool:
    """Processes started once and used again; one that ended is replaced."""

    def __init__(
        self, processes: int, timeout_seconds: float, target: Callable[[Connection], None] = worker.main
    ) -> None:
        """Nothing is started yet; each process will run `target` on its end of a pipe."""
        self._timeout = timeout_seconds
        self._lanes = tuple(_Lane(target) for _ in range(processes))
        self._idle: asyncio.Queue[_Lane] = asyncio.Queue()
        self._threads = ThreadPoolExecutor(max_workers=processes, thread_name_prefix="solver")
        self._warming: list[asyncio.Task[None]] = []
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._closed = False

    async def start(self) -> None:
        """Start the processes in the background: tasks may be given at once."""
        self._warming = [asyncio.create_task(self._warm(lane)) for lane in self._lanes]

    @property
    def ready(self) -> bool:
        """Whether a process has come up and said so."""
        return not self._closed and any(lane.answered for lane in self._lanes)

    @property
    def capacity(self) -> int:
        """Processes."""
        return len(self._lanes)

    async def submit(self, task: Task, on_progress: OnProgress) -> Answer:
        """Solve `task` as soon as a process is free."""
        loop = asyncio.get_running_loop()

        def report(progress: Progress) -> None:
            loop.call_soon_threadsafe(on_progress, progress)

        lane = await self._free(task.id)
        try:
            if self._closed:
                raise WorkerDied("the service is shutting down")
            return await loop.run_in_executor(self._threads, lane.call, task, report, self._timeout)
        finally:
            self._idle.put_nowait(lane)

    async def cancel(self, task_id: str) -> None:
        """Kill the process that works on a task, or take the task out of the line."""
        if (waiting := self._waiting.get(task_id)) is not None:
            waiting.cancel()
        for lane in self._lanes:
            if lane.task_id == task_id:
                await asyncio.to_thread(lane.cancel, task_id)

    async def _free(self, task_id: str) -> _Lane:
        """A lane without work; a task that is cancelled in line gives its turn to the next."""
        turn = asyncio.ensure_future(self._idle.get())
        self._waiting[task_id] = gone = asyncio.get_running_loop().create_future()
        try:
            await asyncio.wait((turn, gone), return_when=asyncio.FIRST_COMPLETED)
            return await turn if turn.done() else self._refuse()
        except BaseException:
            if turn.done() and not turn.cancelled():
                self._idle.put_nowait(turn.result())
            turn.cancel()
            raise
        finally:
            self._waiting.pop(task_id, None)
            with suppress(asyncio.InvalidStateError):
                gone.cancel()

    @staticmethod
    def _refuse() -> _Lane:
        raise cancelled()

    async def close(self) -> None:
        """Kill what runs, and take nothing more."""
        self._closed = True
        for lane in self._lanes:
            lane.stop(closed=True)
        for task in self._warming:
            task.cancel()
        await asyncio.to_thread(self._threads.shutdown, wait=True, cancel_futures=True)

    async def _warm(self, lane: _Lane) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._threads, lane.warm)
        except (WorkerDied, OSError) as error:
            _log.warning("solver process did not start; it is tried again with the next request", error=str(error))
        finally:
            self._idle.put_nowait(lane)
