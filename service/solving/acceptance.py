"""Requests become rows: once each, whether they are repeated by key or equal in content."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.metadata import version
from typing import Final, NamedTuple

import structlog

from planner.identity import canonical_json, digest
from planner.request import PlanRequest
from planner.resolve import resolve
from planner.version import __version__
from service import tracing
from service.callers import Caller
from service.constants import CalibrationShelf, Constants
from service.errors import Busy, Pointed, StorageUnavailable, TooMuch
from service.idempotency import made_before, once
from service.identifiers import new_id
from service.observability import current_request_id
from service.orders import Order, PlanOrder, inline, options_of, resolved_names
from service.solving.checking import check
from service.solving.worker import Verb
from service.storage.database import Database
from service.storage.repositories import Repositories
from service.storage.repositories.plans import Content
from service.storage.tables import Delivery, Solve

MOST_MESSAGES: Final = 1000
"""Of one project, promised and not sent yet."""
LONGEST_REMEMBERED: Final = 2**14
"""Requests with whole config.json files are resolved anew each time. [characters]"""
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A request that can be answered, with its identity and the stored answer to an equal one."""

    request: PlanRequest
    verb: Verb
    model: str
    gpus: int
    constants: Constants
    content_key: str
    stored: Content | None


@dataclass(frozen=True, slots=True)
class Accepted:
    """Where the answer is or will be."""

    id: str
    fresh: bool
    """Whether there is something new in the queue."""


class Acceptance:
    """The way in."""

    def __init__(
        self,
        database: Database,
        shelf: CalibrationShelf,
        *,
        max_waiting: int,
        max_of_project: int | None = None,
        webhooks: Callable[[str], str | None] | None,
    ) -> None:
        """At most `max_waiting` requests wait or are worked on. `webhooks` says what is wrong with a URL; None: all."""
        self._database, self._shelf, self._webhooks = database, shelf, webhooks
        self._max_waiting, self._max_of_project = max_waiting, max_of_project

    async def prepare(self, caller: Caller, order: Order, verb: Verb) -> Prepared:
        """Look names up, resolve, and find the answer to an equal request.

        Raises:
            NotInline: its model is a path or a download.
            SpecError: the request names something unknown, contradicts itself, or has no such answer.
        """
        inline(order)
        return await self._database.reading(lambda work: self._prepared(work, caller, order, verb))

    async def accept(self, caller: Caller, order: PlanOrder, prepared: Prepared, key: str | None) -> Accepted:
        """Queue the request, unless an equal one is stored or under way, or the key has been used for it.

        Raises:
            KeyReused: the key came with another request.
            Pointed: messages cannot be sent to its webhook.
            Busy: as many as this installation takes are waiting.
            TooMuch: as many as it takes of one project are.
            StorageUnavailable: nothing can be stored now, and what is stored does not answer it.
        """
        if order.webhook is not None:
            self._check(order.webhook.url)
        if prepared.stored is not None and key is None and order.webhook is None:
            return Accepted(prepared.stored.id, fresh=False)
        parent = tracing.traceparent()
        try:
            return await self._database.writing(lambda work: self._accepted(work, caller, order, prepared, key, parent))
        except StorageUnavailable as error:
            if order.webhook is not None:  # a message would have to be promised
                raise
            known = await self._database.reading(lambda work: self._known(work, caller, order, prepared, key))
            if known is None:
                raise
            _log.warning("nothing can be stored; what there is answers", plan_id=known, reason=str(error))
            return Accepted(known, fresh=False)

    def _check(self, url: str) -> None:
        if self._webhooks is None:
            raise Pointed(
                "/webhook", "webhook: this installation sends no messages; it has no MESHWRIGHT_WEBHOOK_SECRET"
            )
        wrong = self._webhooks(url)
        if wrong is not None:
            raise Pointed("/webhook/url", f"webhook.url {wrong}")

    def _prepared(self, work: Repositories, caller: Caller, order: Order, verb: Verb) -> Prepared:
        request = resolved_names(order, work, caller.project_id)
        constants = self._shelf.current(work, caller.project_id)
        # As it was asked, so that equal text is resolved once; identity comes from what it resolves to.
        asked = request.model_dump_json(exclude_unset=True)
        identify = _identified if len(asked) <= LONGEST_REMEMBERED else _identified.__wrapped__
        options = options_of(order)
        identity = identify(asked, verb, canonical_json(options), constants.sha256)
        stored = work.plans.equal(caller.project_id, identity.content_key)
        if stored is None:
            check(verb, request, options, constants.calibration)
        return Prepared(
            request=request,
            verb=verb,
            model=identity.model,
            gpus=identity.gpus,
            constants=constants,
            content_key=identity.content_key,
            stored=stored,
        )

    def _accepted(
        self,
        work: Repositories,
        caller: Caller,
        order: PlanOrder,
        prepared: Prepared,
        key: str | None,
        parent: str | None,
    ) -> Accepted:
        queued = False

        def make() -> str:
            nonlocal queued
            found = self._joined(work, caller, prepared)
            queued = found is None
            made = found or self._queued(work, caller, order, prepared, parent)
            if order.webhook is not None:
                _promise(work, caller, made, order.webhook.url)
            return made

        made, _ = once(work, caller, key, prepared.verb, order, make)
        return Accepted(made, fresh=queued)

    def _known(
        self, work: Repositories, caller: Caller, order: PlanOrder, prepared: Prepared, key: str | None
    ) -> str | None:
        """What answers the request without anything new: what its key made, or else an equal one."""
        return made_before(work, caller, key, prepared.verb, order) or self._joined(work, caller, prepared)

    @staticmethod
    def _joined(work: Repositories, caller: Caller, prepared: Prepared) -> str | None:
        """An equal request under way, or its plan; in this order, as one becomes the other."""
        found = work.solves.live(caller.project_id, prepared.content_key)
        if found is None and (stored := work.plans.equal(caller.project_id, prepared.content_key)) is not None:
            found = stored.id
        return found

    def _check_room(self, work: Repositories, caller: Caller) -> None:
        waiting = work.solves.count_live()
        if waiting >= self._max_waiting:
            raise Busy(f"{waiting} plans are waiting, this installation takes {self._max_waiting}")
        share = self._max_of_project or max(1, self._max_waiting // 2)
        if waiting < share or (own := work.solves.count_live(caller.project_id)) < share:
            return
        if self._max_of_project is not None or work.projects.several():
            raise TooMuch(f"{own} plans of this project are waiting, each project may have {share}")

    def _queued(
        self, work: Repositories, caller: Caller, order: PlanOrder, prepared: Prepared, parent: str | None
    ) -> str:
        self._check_room(work, caller)
        solve = Solve(
            id=new_id(),
            project_id=caller.project_id,
            verb=prepared.verb,
            options=options_of(order),
            request=prepared.request.model_dump_json(exclude_unset=True),
            content_key=prepared.content_key,
            calibration_id=prepared.constants.id,
            model=prepared.model,
            gpus=prepared.gpus,
            objective=",".join(prepared.request.objectives),
            created_by=caller.name,
            traceparent=parent,
            request_id=current_request_id(),
            expected_seconds=work.solves.expected_seconds(
                caller.project_id, prepared.verb, prepared.model, prepared.gpus
            ),
        )
        work.solves.add(solve)
        return solve.id


def _check_messages(work: Repositories, caller: Caller) -> None:
    waiting = work.deliveries.count_unsent(caller.project_id)
    if waiting >= MOST_MESSAGES:
        raise TooMuch(f"{waiting} messages of this project wait to be sent, each project may have {MOST_MESSAGES}")


def _promise(work: Repositories, caller: Caller, solve_id: str, url: str) -> None:
    """A message when a solve ends; at once if it has. One for each address, however many equal requests name it."""
    if work.deliveries.promised(solve_id, url):
        return
    _check_messages(work, caller)
    work.deliveries.add(Delivery(id=new_id(), project_id=caller.project_id, solve_id=solve_id, url=url))
    if work.plans.exists(caller.project_id, solve_id):
        work.deliveries.release(solve_id)


class _Identity(NamedTuple):
    """Of a question: what it is about, and the key under which equal ones share an answer."""

    content_key: str
    model: str
    gpus: int


@lru_cache(maxsize=1024)
def _identified(asked: str, verb: Verb, options: bytes, calibration_sha256: str) -> _Identity:
    """The identity of a request: every name looked up, every default written out, with all that decides the answer."""
    resolved = resolve(PlanRequest.model_validate_json(asked))
    content_key = digest(
        {
            "verb": verb,
            "options": json.loads(options),
            "request": resolved.request_hash_under(calibration_sha256),
            "release": _release(),
        }
    )
    return _Identity(content_key, resolved.model.name[:200], resolved.cluster.gpus)


@cache
def _release() -> dict[str, str]:
    """What else decides an answer: the formulas of this release, and the solver's."""
    return {"meshwright": __version__, "ortools": version("ortools")}
