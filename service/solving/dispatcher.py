"""Takes solves from the queue, has them solved, and writes how they ended. One in each service process."""

import asyncio
import os
import platform
import secrets
import time
import traceback
from contextlib import suppress
from typing import Final

import structlog
from opentelemetry.trace import Span

from planner.request import PlanRequest
from service import metrics, recalibrating, tracing
from service.constants import CalibrationShelf
from service.errors import Cancelled, PoolAway, ServiceError, SolveFailed, StorageUnavailable, WorkerDied
from service.problem_kinds import INTERNAL
from service.problems import problem, problem_of
from service.recalibrating import VERB
from service.solving import outcome
from service.solving.pool import SolverPool, cancelled
from service.solving.watch import Watch
from service.solving.worker import Answer, Progress, Task, Verb
from service.storage.database import Database
from service.storage.repositories import Repositories
from service.storage.repositories.solves import Held
from service.storage.tables import Solve

_VERBS: Final[dict[str, Verb]] = {"plan": "plan", "frontier": "frontier", "ladder": "ladder", VERB: "calibration"}
QUEUED: Final = tuple(_VERBS)
"""What waits in the queue; estimates are answered at once."""
ENDS: Final = ("done", "failed", "cancelled", "late")
"""How they end, for the metrics."""
MOST_DEATHS: Final = 2
"""A request whose worker died so often is not tried again: it may be what kills them."""
MOST_ATTEMPTS: Final = 5
"""The same for whole services that died."""
BEATS: Final = 4
"""Renewals within a lease: it outlives three that fail."""
LONGEST_GOODBYE: Final = 1.0
"""What a closed pool has not let go by then is cut off; its lease is given back already. [seconds]"""
LONGEST_BEAT: Final = 2.0
"""Other replicas see progress this old at most. [seconds]"""
_log = structlog.get_logger(__name__)


class Dispatcher:
    """Works on as many solves as its pool has room for."""

    def __init__(
        self,
        database: Database,
        pool: SolverPool,
        shelf: CalibrationShelf,
        watch: Watch,
        *,
        lease_seconds: float,
        poll_seconds: float,
    ) -> None:
        """Nothing is claimed before `start`."""
        self.owner = f"{platform.node()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._database, self._pool, self._shelf, self._watch = database, pool, shelf, watch
        self._lease, self._poll = lease_seconds, poll_seconds
        self._held: dict[str, Held] = {}
        self._works: set[asyncio.Task[None]] = set()
        self._loops: list[asyncio.Task[None]] = []
        self._more = asyncio.Event()
        self._closing = False
        for verb in QUEUED:
            for status in ENDS:
                metrics.SOLVES.labels(verb, status)  # 0 from the start, so that the first one is an increase

    async def start(self) -> None:
        """Begin to claim."""
        self._loops = [asyncio.create_task(self._claiming()), asyncio.create_task(self._beating())]

    def wake(self) -> None:
        """There is something in the queue."""
        self._more.set()

    async def cancel(self, solve_id: str) -> None:
        """Stop a solve if this process works on it; another one sees the wish with its next beat."""
        if solve_id in self._held:
            await self._pool.cancel(solve_id)

    async def close(self) -> None:
        """Let others have what is not finished, and stop. Nothing is counted against these requests."""
        self._closing = True
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        held = list(self._held.values())

        def release(work: Repositories) -> None:
            for one in held:
                work.solves.give_back(one, died=False)

        if held:
            try:
                await self._database.writing(release)
                _log.info("unfinished requests are given back to the queue", plan_ids=[one.id for one in held])
            except ServiceError as error:  # without the database the leases run out by themselves
                _log.warning("unfinished requests are left to their leases", error=str(error))
        await self._pool.close()
        if self._works:
            _, stuck = await asyncio.wait(self._works, timeout=LONGEST_GOODBYE)
            for work in stuck:
                work.cancel()
            await asyncio.gather(*stuck, return_exceptions=True)

    async def _claiming(self) -> None:
        while True:
            self._more.clear()
            room = self._pool.capacity - len(self._works)
            try:
                taken = await self._claimed(room) if room > 0 else []
            except Exception as error:  # the loop goes on whatever happens: requests wait for it
                _log.error("the queue cannot be read", error=str(error))
                taken = []
            for solve in taken:
                work = asyncio.create_task(self._work(solve))
                self._works.add(work)
                work.add_done_callback(self._done)
            if not taken:
                with suppress(TimeoutError):
                    # Not wait_for: in Python 3.11 it swallows a cancellation that comes together with the event.
                    async with asyncio.timeout(self._poll):
                        await self._more.wait()

    def _done(self, work: asyncio.Task[None]) -> None:
        self._works.discard(work)
        if not work.cancelled() and (error := work.exception()) is not None:
            _log.error("a solve could not be ended", exc_info=error)
        self._more.set()

    async def _claimed(self, most: int) -> list[Solve]:
        own = tuple(self._held)

        def claim(work: Repositories) -> list[Solve]:
            return work.solves.claim(self.owner, verbs=QUEUED, most=most, seconds=self._lease, besides=own)

        return await self._database.writing(claim)

    async def _beating(self) -> None:
        """Hold the leases, tell the others how far each solve is, and learn what is to be stopped."""
        while True:
            await asyncio.sleep(min(self._lease / BEATS, LONGEST_BEAT))
            held = list(self._held.values())
            if not held:
                continue
            told = {one.id: found for one in held if (found := self._watch.progress(one.id)) is not None}
            progress = {solve_id: found.model_dump(exclude_none=True) for solve_id, found in told.items()}
            try:
                renewed = await self._database.writing(
                    lambda work, held=held, progress=progress: work.solves.renew(  # type: ignore[misc]
                        held, progress, self._lease
                    )
                )
            except Exception as error:
                _log.warning("leases could not be renewed", error=str(error))
                continue
            lost = [one for one in held if one not in renewed.kept and self._held.get(one.id) == one]
            for one in lost:
                _log.warning("a lease has passed to another", plan_id=one.id)
            for solve_id in {one.id for one in lost} | renewed.cancelled:
                await self._pool.cancel(solve_id)

    async def _work(self, solve: Solve) -> None:
        held = Held(solve.id, solve.fence)
        self._held[solve.id] = held
        try:
            ids = {"plan_id": solve.id, "request_id": solve.request_id}
            with structlog.contextvars.bound_contextvars(**ids), tracing.resumed(solve.traceparent):
                about: tracing.Attributes = {"meshwright.plan_id": solve.id, "meshwright.attempt": solve.attempts}
                tracing.past(f"{solve.verb}.queue", solve.created_at, about)
                with tracing.work(f"{solve.verb}.solve", about) as span:
                    await self._solved(solve, held, span)
        finally:
            if self._held.get(solve.id) == held:
                del self._held[solve.id]
            self._watch.ended(solve.id)

    async def _solved(self, solve: Solve, held: Held, span: Span) -> None:
        started = time.perf_counter()
        state, answer = "failed", Answer()
        try:
            answer = await self._answered(solve)
            state = outcome.state_of(answer)
        except Cancelled as error:
            state, answer = "cancelled", Answer(problem=problem_of(error))
        except WorkerDied as error:
            if self._closing:
                return
            away = isinstance(error, PoolAway)
            if away or solve.deaths + 1 < MOST_DEATHS:
                _log.warning("a request goes back to the queue", error=str(error), attempts=solve.attempts)
                await self._settled(lambda work: work.solves.give_back(held, died=not away))
                return
            answer = Answer(problem=problem_of(error))
        except ServiceError as error:
            answer = Answer(problem=problem_of(error))
        except Exception as error:  # whatever a pool raises, the solve ends: nobody waits for ever
            text = f"the {solve.verb} failed with {type(error).__name__}"
            answer = Answer(problem=problem(INTERNAL, text), trace=traceback.format_exc())
        if answer.trace:
            _log.error("the solver failed", exception=answer.trace)
        metrics.SOLVE_SECONDS.labels(solve.verb).observe(time.perf_counter() - started)
        counted = await self._settled(lambda work: self._ended(work, solve, held, state, answer))
        metrics.SOLVES.labels(solve.verb, state if counted else "late").inc()
        why = answer.problem.detail if answer.problem else None
        span.set_attribute("meshwright.state", state if counted else "late")
        if why is not None:
            tracing.failed(span, why)
        tell = _log.error if counted and state == "failed" else _log.info
        tell("solve ended", state=state if counted else "late", attempts=solve.attempts, problem=why)

    async def _answered(self, solve: Solve) -> Answer:
        """What the pool makes of it, unless it has been tried too often."""
        if solve.cancel_requested:
            raise cancelled()
        if solve.deaths >= MOST_DEATHS or solve.attempts > MOST_ATTEMPTS:
            raise SolveFailed(f"the work on it ended {solve.attempts - 1} times in the middle; it is not tried again")
        task = await self._database.reading(lambda work: self._task(work, solve))

        def progressed(progress: Progress) -> None:
            self._watch.progressed(solve.id, progress)

        answer = await self._pool.submit(task.model_copy(update={"request_id": solve.request_id}), progressed)
        if answer.worked is not None:
            tracing.between(f"{solve.verb}.work", answer.worked)
        return answer

    def _task(self, work: Repositories, solve: Solve) -> Task:
        constants = self._shelf.get(work, solve.project_id, solve.calibration_id)
        if solve.verb == VERB:
            return recalibrating.task_of(work, solve, constants)
        return Task(
            id=solve.id,
            request=PlanRequest.model_validate_json(solve.request),
            verb=_VERBS[solve.verb],
            options=solve.options,
            calibration=constants.calibration,
        )

    def _ended(self, work: Repositories, solve: Solve, held: Held, state: str, answer: Answer) -> bool:
        if solve.verb == VERB and answer.plan_json is not None:
            kept = outcome.end(work, held, state)
            if kept:
                recalibrating.keep(work, solve, answer.plan_json)
            return kept
        plan = None
        if answer.plan_json is not None:
            plan = outcome.stored_plan(
                answer.plan_json,
                plan_id=solve.id,
                project_id=solve.project_id,
                kind=solve.verb,
                content_key=solve.content_key,
                calibration_id=solve.calibration_id,
                asked_at=solve.created_at,
            )
        return outcome.end(work, held, state, plan=plan, problem=answer.problem)

    async def _settled(self, write: "outcome.Write") -> bool:
        """Write an end, however long the database is away: a result is not given up while its lease may hold."""
        while True:
            try:
                return await self._database.writing(write)
            except StorageUnavailable as error:
                if self._closing:
                    raise
                _log.warning("a result waits for the database", error=str(error))
                await asyncio.sleep(self._poll)
