"""Plans from the caller's side: ask, wait, watch, cancel; and estimates, which are answered at once."""

import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import structlog

from service import metrics, tracing
from service.callers import Caller
from service.errors import Busy, Conflict, NotFound, ServiceError, TooMuch
from service.identifiers import new_id
from service.observability import current_request_id
from service.orders import Order, PlanOrder
from service.problem_kinds import INTERNAL
from service.problems import Problem, problem
from service.security.authenticate import still_let_in
from service.solving import outcome
from service.solving.acceptance import Acceptance, Prepared
from service.solving.dispatcher import Dispatcher
from service.solving.pool import SolverPool
from service.solving.turns import Turns
from service.solving.watch import Watch
from service.solving.worker import Answer, Progress, Task, Verb
from service.storage.database import Database
from service.storage.repositories import Repositories
from service.storage.repositories.plans import PLANS, Content, Kinds
from service.storage.tables import now

_log = structlog.get_logger(__name__)
LONG_SECONDS: Final = 60.0
"""Whoever posts what is expected to take longer than this, and than they would wait, has the address at once."""
FINAL = frozenset({"done", "failed", "cancelled"})


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What is known of a plan at an instant: its bytes, or how far it is, or why there is none."""

    id: str
    state: str
    created_at: datetime
    content: Content | None = None
    progress: Progress | None = None
    problem: Problem | None = None
    expected_seconds: float | None = None

    @property
    def final(self) -> bool:
        """Whether it stays like this."""
        return self.state in FINAL


class Planning:
    """The service's verbs."""

    def __init__(
        self,
        database: Database,
        acceptance: Acceptance,
        dispatcher: Dispatcher,
        watch: Watch,
        estimates: SolverPool,
        *,
        poll_seconds: float,
        max_estimates: int,
        max_watching: int,
    ) -> None:
        """`max_estimates` wait at the same time, and `max_watching` callers of one project."""
        self._database, self._acceptance, self._dispatcher, self._watch = database, acceptance, dispatcher, watch
        self._estimates, self._poll, self._max_estimates = estimates, poll_seconds, max_estimates
        self._estimating: Counter[str] = Counter()
        """Estimates that wait or are worked on, by project."""
        self._turns = Turns(max(1, estimates.capacity))
        self._max_watching = max_watching
        self._watching: Counter[str] = Counter()
        """Callers who wait or watch, by project."""

    async def ask(
        self, caller: Caller, order: PlanOrder, *, key: str | None, wait: float | None, verb: Verb = "plan"
    ) -> View:
        """Accept a request and wait for its answer as long as the caller likes."""
        prepared = await self._acceptance.prepare(caller, order, verb)
        accepted = await self._acceptance.accept(caller, order, prepared, key)
        if accepted.fresh:
            self._dispatcher.wake()
        stored = prepared.stored is not None and prepared.stored.id == accepted.id
        metrics.ASKED.labels(verb, "stored" if stored else "queued" if accepted.fresh else "joined").inc()
        structlog.contextvars.bind_contextvars(plan_id=accepted.id)
        if stored and prepared.stored is not None:
            return _done(prepared.stored)
        view = await self.look(caller, accepted.id, kinds=(verb,))
        if view.final or not wait or (view.expected_seconds or 0.0) > max(wait, LONG_SECONDS):
            return view
        return await self.look(caller, accepted.id, wait=wait, kinds=(verb,))

    async def look(self, caller: Caller, plan_id: str, *, wait: float = 0.0, kinds: Kinds = PLANS) -> View:
        """A plan as it is, or as it is when it has ended or the wait is over.

        Raises:
            NotFound: there is none of this id.
            Unauthenticated: the caller's key was revoked during the wait.
        """
        deadline = time.monotonic() + wait
        view = await self._database.reading(lambda work: self._view(work, caller, plan_id, kinds))
        if view.final or wait <= 0 or self._full(caller):
            return view
        with self._counted(caller), self._watch.over(plan_id) as changes:
            while True:
                view = await self._database.reading(lambda work: self._seen(work, caller, plan_id, kinds))
                left = deadline - time.monotonic()
                if view.final or left <= 0 or self._watch.closing:
                    return view
                await changes.next(min(left, self._poll))

    async def watchable(self, caller: Caller, plan_id: str, *, kinds: Kinds = PLANS) -> View:
        """A plan that the caller may watch.

        Raises:
            NotFound: there is none of this id.
            TooMuch: the caller's project watches as many as it may.
        """
        view = await self.look(caller, plan_id, kinds=kinds)
        if self._full(caller) and not view.final:
            raise TooMuch(f"{self._max_watching} callers of this project wait or watch already, the most that may")
        return view

    async def follow(self, caller: Caller, plan_id: str, *, kinds: Kinds = PLANS) -> AsyncIterator[View]:
        """Every change of a plan until it has ended.

        Raises:
            Unauthenticated: the caller's key was revoked meanwhile.
        """
        last: View | None = None
        with self._counted(caller), self._watch.over(plan_id) as changes:
            while last is None or not (last.final or self._watch.closing):
                view = await self._database.reading(lambda work: self._seen(work, caller, plan_id, kinds))
                if last is None or (view.state, view.progress) != (last.state, last.progress):
                    yield view
                last = view
                if not (view.final or self._watch.closing):
                    await changes.next(self._poll)

    def end_waits(self) -> None:
        """The service is told to end: whoever waits is answered with what there is, and streams end."""
        self._watch.close()

    @property
    def closing(self) -> bool:
        """Whether it has been told to end."""
        return self._watch.closing

    async def cancel(self, caller: Caller, plan_id: str, *, kinds: Kinds = PLANS) -> View:
        """Stop a plan that is being made: one that is worked on is `cancelling` until its worker has stopped.

        Raises:
            NotFound: there is none of this id.
            Conflict: it is made already; plans are kept as they are.
        """

        def cancel(work: Repositories) -> str | None:
            self._view(work, caller, plan_id, kinds)
            state = work.solves.cancel(caller.project_id, plan_id)
            if state == "cancelled":
                work.deliveries.release(plan_id)
            return state

        state = await self._database.writing(cancel)
        if state in {"done", "failed"}:
            raise Conflict(f"the plan's state is {state}; only one that is being made can be cancelled")
        if state == "running":
            await self._dispatcher.cancel(plan_id)
        self._watch.woken(plan_id)
        return await self.look(caller, plan_id, kinds=kinds)

    async def estimate(self, caller: Caller, order: Order) -> Content | Problem:
        """Price exactly the order's configuration, or find the price of an equal one."""
        prepared = await self._acceptance.prepare(caller, order, "estimate")
        metrics.ASKED.labels("estimate", "queued" if prepared.stored is None else "stored").inc()
        if prepared.stored is not None:
            return prepared.stored
        self._check_room(caller)
        self._estimating[caller.project_id] += 1
        try:
            task = Task(
                id=new_id(),
                request=prepared.request,
                verb="estimate",
                calibration=prepared.constants.calibration,
                request_id=current_request_id(),
            )
            async with self._turns.of(caller.project_id):
                answer = await self._estimates.submit(task, lambda _: None)
            if answer.worked is not None:
                tracing.between("estimate.work", answer.worked)
        except ServiceError:
            raise
        except Exception as error:  # whatever a pool raises, the caller learns what failed
            _log.exception("the estimate failed")
            return problem(INTERNAL, f"the estimate failed with {type(error).__name__}")
        finally:
            self._estimating[caller.project_id] -= 1
        if answer.plan_json is None:
            assert answer.problem is not None
            return answer.problem
        return await self._database.writing(lambda work: _kept(work, caller, prepared, task, answer))

    def _check_room(self, caller: Caller) -> None:
        waiting, share = self._estimating.total(), max(1, self._max_estimates // 2)
        if waiting >= self._max_estimates:
            raise Busy(f"{waiting} estimates are waiting, this installation takes {self._max_estimates}")
        if (own := self._estimating[caller.project_id]) >= share:
            raise TooMuch(f"{own} estimates of this project are waiting, each project may have {share}")

    def _full(self, caller: Caller) -> bool:
        return self._watching[caller.project_id] >= self._max_watching

    @contextmanager
    def _counted(self, caller: Caller) -> Iterator[None]:
        self._watching[caller.project_id] += 1
        try:
            yield
        finally:
            self._watching[caller.project_id] -= 1

    def _seen(self, work: Repositories, caller: Caller, plan_id: str, kinds: Kinds) -> View:
        """A plan as a caller sees it who was let in a while ago."""
        still_let_in(work, caller)
        return self._view(work, caller, plan_id, kinds)

    def _view(self, work: Repositories, caller: Caller, plan_id: str, kinds: Kinds) -> View:
        content = work.plans.content(caller.project_id, plan_id, kinds)
        if content is not None:
            return _done(content)
        solve = work.solves.get(caller.project_id, plan_id)
        if solve is None or solve.verb not in kinds:
            raise NotFound(f"no {kinds[0]} of this id is known")
        progress = self._watch.progress(plan_id)
        if progress is None and solve.progress is not None:
            progress = Progress.model_validate(solve.progress)
        problem = None if solve.problem is None else Problem.model_validate(solve.problem)
        return View(
            id=plan_id,
            state=solve.shown,
            created_at=solve.created_at,
            progress=progress if solve.shown == "running" else None,
            problem=problem,
            expected_seconds=solve.expected_seconds,
        )


def _done(content: Content) -> View:
    return View(id=content.id, state="done", created_at=content.created_at, content=content)


def _kept(work: Repositories, caller: Caller, prepared: Prepared, task: Task, answer: Answer) -> Content:
    """Store an estimate; where another was quicker, its."""
    stored = work.plans.equal(caller.project_id, prepared.content_key)
    if stored is not None:
        return stored
    assert answer.plan_json is not None
    plan = outcome.stored_plan(
        answer.plan_json,
        plan_id=task.id,
        project_id=caller.project_id,
        kind="estimate",
        content_key=prepared.content_key,
        calibration_id=prepared.constants.id,
        asked_at=now(),
    )
    work.plans.add(plan)
    return Content(plan.id, plan.content, plan.etag, plan.created_at)
