"""What is known of every accepted plan, in memory: a restart forgets it."""

import asyncio
import contextlib
import traceback
import uuid
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

import structlog

from planner.request import PlanRequest
from service.errors import Busy, NotFound, ServiceError, WorkerDied
from service.jobs.pool import WorkPool
from service.jobs.worker import Answer, Progress, Task
from service.problems import INTERNAL, Problem, problem, problem_of

State = Literal["queued", "running", "done", "failed"]
Verb = Literal["plan", "estimate"]
_log = structlog.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class Job:
    """One accepted request on its way to a plan."""

    id: str
    request: PlanRequest
    verb: Verb = "plan"
    created_at: datetime
    state: State = "queued"
    progress: Progress | None = None
    plan_json: str | None = None
    problem: Problem | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def end(self, answer: Answer) -> None:
        """Keep the outcome and wake whoever waits."""
        self.plan_json, self.problem = answer.plan_json, answer.problem
        self.state = "done" if answer.problem is None else "failed"
        self.ended.set()


class Jobs:
    """Accepts requests, runs them in a pool, keeps the latest outcomes."""

    def __init__(self, pool: WorkPool, *, kept: int, max_waiting: int) -> None:
        """`kept` finished jobs are remembered, `max_waiting` unfinished ones accepted."""
        self._pool = pool
        self._kept = kept
        self._max_waiting = max_waiting
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._running: set[asyncio.Task[None]] = set()

    def submit(self, request: PlanRequest, verb: Verb = "plan") -> Job:
        """Accept a request.

        Raises:
            Busy: as many as this installation takes are waiting.
        """
        if len(self._running) >= self._max_waiting:
            raise Busy(f"{len(self._running)} {verb}s are waiting, this installation takes {self._max_waiting}")
        job = Job(id=str(uuid.uuid4()), request=request, verb=verb, created_at=datetime.now(UTC))
        self._jobs[job.id] = job
        self._forget()
        task = asyncio.create_task(self._run(job))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return job

    def get(self, job_id: str) -> Job:
        """The job of an id.

        Raises:
            NotFound: none is known.
        """
        try:
            return self._jobs[job_id]
        except KeyError:
            raise NotFound("no plan of this id is known") from None

    async def wait(self, job: Job, seconds: float) -> None:
        """Until the job has ended, at most so long."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(job.ended.wait(), seconds)

    async def close(self) -> None:
        """End all work."""
        await self._pool.close()
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _run(self, job: Job) -> None:
        def progressed(progress: Progress) -> None:
            job.state, job.progress = ("running", progress) if not job.ended.is_set() else (job.state, progress)

        with structlog.contextvars.bound_contextvars(plan_id=job.id):
            try:
                answer = await self._pool.run(Task(id=job.id, request=job.request, verb=job.verb), progressed)
            except ServiceError as error:
                answer = Answer(problem=problem_of(error))
            except asyncio.CancelledError:
                job.end(Answer(problem=problem_of(WorkerDied("the service is shutting down"))))
                raise
            except Exception as error:  # whatever a pool raises, the job ends: nobody waits for ever
                text = f"the {job.verb} failed with {type(error).__name__}"
                answer = Answer(problem=problem(INTERNAL, text), trace=traceback.format_exc())
            job.end(answer)
            seconds = (datetime.now(UTC) - job.created_at).total_seconds()
            why = answer.problem.detail if answer.problem else None
            _log.info("solve ended", state=job.state, seconds=seconds, problem=why)
            if answer.trace:
                _log.error("the solver failed", exception=answer.trace)

    def _forget(self) -> None:
        """Drop the oldest finished jobs beyond what is kept."""
        surplus = len(self._jobs) - self._kept - len(self._running)
        if surplus > 0:
            for job in [job for job in self._jobs.values() if job.ended.is_set()][:surplus]:
                del self._jobs[job.id]
