"""Accepted requests: claimed under a lease, ended under a fence."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import structlog
from sqlalchemy import ColumnElement, Select, Subquery, and_, func, literal_column, or_, select, text, update
from sqlalchemy.engine import CursorResult
from sqlalchemy.orm import aliased

from service.storage.dialects import epoch_now, unlocked
from service.storage.repositories.base import ALWAYS, Created, Page, Repository
from service.storage.tables import LIVE, LIVE_STATES, Solve, StoredPlan, Tag, now


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Which solves are listed."""

    verb: str = "plan"
    state: str | None = None
    status: str | None = None
    model: str | None = None
    tag: str | None = None
    created: Created = ALWAYS


_log = structlog.get_logger(__name__)
LATELY: Final = 500
"""Requests of a project that are looked through for alike ones."""
LOOKED_AT: Final = 5
ALIKE: Final = 2
"""Requests of one model on up to so many times as many devices, or as few, count as alike."""


def _live(of: Any) -> ColumnElement[bool]:
    """Not ended, in the words of the partial index, without which the whole past would be looked through."""
    live: ColumnElement[bool] = of.state.in_([literal_column(f"'{state}'") for state in LIVE_STATES])
    return live


_FREE: Final = and_(
    _live(Solve), or_(Solve.state == "queued", and_(Solve.state == "running", Solve.lease_until < epoch_now()))
)
"""Waits, or its holder has gone silent."""


class Held(NamedTuple):
    """A solve under its lease."""

    id: str
    fence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewed:
    """What the database says of the solves that a process works on."""

    kept: frozenset[Held] = field(default_factory=frozenset)
    """Leases that hold on."""
    cancelled: frozenset[str] = field(default_factory=frozenset)


class Solves(Repository):
    """The queue and its past."""

    def add(self, solve: Solve) -> None:
        """Accept a request."""
        self._session.add(solve)
        self._session.flush()

    def get(self, project_id: str, solve_id: str) -> Solve | None:
        """The solve of an id."""
        row = self._session.get(Solve, solve_id)
        return row if row is not None and row.project_id == project_id else None

    def live(self, project_id: str, content_key: str) -> str | None:
        """Id of a solve of an equal question that has not ended."""
        own = (Solve.project_id == project_id, Solve.content_key == content_key, text(LIVE))
        return self._session.scalar(select(Solve.id).where(*own))

    def count_live(self, project_id: str | None = None, verb: str | None = None) -> int:
        """Accepted and not ended, of one project or of all, of one verb or of all."""
        query = select(func.count()).select_from(Solve).where(text(LIVE))
        if project_id is not None:
            query = query.where(Solve.project_id == project_id)
        if verb is not None:
            query = query.where(Solve.verb == verb)
        return self._session.scalar(query) or 0

    def expected_seconds(self, project_id: str, verb: str, model: str, gpus: int) -> float | None:
        """The longest that the newest requests like this took; None: the project has had none lately. [seconds]"""
        lately = select(Solve.id).where(Solve.project_id == project_id).order_by(Solve.id.desc()).limit(LATELY)
        alike = (
            Solve.id.in_(lately.subquery().select()),
            Solve.verb == verb,
            Solve.model == model,
            Solve.gpus.between(gpus / ALIKE, gpus * ALIKE),
            Solve.state == "done",
        )
        query = select(Solve.started_at, Solve.ended_at).where(*alike).order_by(Solve.id.desc()).limit(LOOKED_AT)
        took = [
            (ended - started).total_seconds() for started, ended in self._session.execute(query) if started and ended
        ]
        return max(took, default=None)

    def newest(self, project_id: str, verb: str) -> str | None:
        """Id of the last one that was accepted."""
        own = (Solve.project_id == project_id, Solve.verb == verb)
        return self._session.scalar(select(Solve.id).where(*own).order_by(Solve.id.desc()).limit(1))

    def depth(self) -> dict[str, int]:
        """Accepted and not ended by state, of all projects."""
        count = select(Solve.state, func.count()).where(text(LIVE)).group_by(Solve.state)
        found = {state: number for state, number in self._session.execute(count).all()}  # noqa: C416 (rows are no tuples)
        return {state: found.get(state, 0) for state in ("queued", "running")}

    def page(self, project_id: str, filters: Filters, *, after: str | None, size: int) -> Page[Solve]:
        """Solves, newest first."""
        return self._page(_filtered(project_id, filters), Solve.id, after, size)

    # --- the queue -------------------------------------------------------------------------------------------------

    def claim(
        self, owner: str, *, verbs: Sequence[str], most: int, seconds: float, besides: Collection[str] = ()
    ) -> list[Solve]:
        """Take waiting solves, and those whose holder has gone silent; nobody else does for `seconds`.

        Projects take turns: the next one is of the project that has the fewest under way, then of the one that had its
        last turn longest ago; within a project the oldest is first. `besides` are what the claimer works on itself: its
        result may have waited for the database beyond its lease.
        """
        free = and_(_FREE, Solve.verb.in_(verbs), Solve.id.not_in(besides))
        turns = _turns(free)
        query = (
            select(Solve)
            .join(turns, turns.c.id == Solve.id)
            .where(free)
            .order_by(turns.c.turn, turns.c.served.nulls_first(), Solve.id)
            .limit(most)
        )
        rows = list(self._session.scalars(unlocked(query, Solve)))
        for row in rows:
            if row.state == "running":
                ids = {"plan_id": row.id, "request_id": row.request_id}
                _log.warning("a solve is taken over: its holder fell silent", holder=row.lease_owner, **ids)
            row.state, row.lease_owner = "running", owner
            row.fence, row.attempts = row.fence + 1, row.attempts + 1
            row.started_at, row.progress = now(), None
        self._session.flush()
        self._session.execute(
            update(Solve)
            .where(Solve.id.in_([row.id for row in rows]))
            .values(lease_until=epoch_now() + seconds)
            .execution_options(synchronize_session=False)
        )
        return rows

    def renew(self, held: Sequence[Held], progress: Mapping[str, dict[str, Any]], seconds: float) -> Renewed:
        """Hold leases for another while, and note how far each solve is."""
        kept: set[Held] = set()
        for solve_id, fence in held:
            values: dict[str, Any] = {"lease_until": epoch_now() + seconds}
            if solve_id in progress:
                values["progress"] = progress[solve_id]
            if self._under(solve_id, fence, values):
                kept.add(Held(solve_id, fence))
        ids = [solve_id for solve_id, _ in kept]
        asked = self._session.scalars(select(Solve.id).where(Solve.id.in_(ids), Solve.cancel_requested)) if ids else ()
        return Renewed(kept=frozenset(kept), cancelled=frozenset(asked))

    def finish(self, held: Held, state: str, *, problem: dict[str, Any] | None = None) -> bool:
        """End a solve; False when the lease has passed to another, whose result counts."""
        return self._under(
            *held, {"state": state, "problem": problem, "ended_at": now(), "lease_owner": None, "lease_until": None}
        )

    def give_back(self, held: Held, *, died: bool) -> bool:
        """Let the solve be claimed again: its process died, or this service is ending."""
        values: dict[str, Any] = {"state": "queued", "lease_owner": None, "lease_until": None, "progress": None}
        values |= {"deaths": Solve.deaths + 1} if died else {"attempts": Solve.attempts - 1}
        return self._under(*held, values)

    def cancel(self, project_id: str, solve_id: str) -> str | None:
        """End a waiting solve at once, ask for the end of a running one; the state it is in then."""
        row = self._session.scalar(
            select(Solve).where(Solve.id == solve_id, Solve.project_id == project_id).with_for_update()
        )
        if row is None:
            return None
        if row.state == "queued":
            row.state, row.ended_at = "cancelled", now()
        elif row.state == "running":
            row.cancel_requested = True
        self._session.flush()
        return row.state

    def _under(self, solve_id: str, fence: int, values: dict[str, Any]) -> bool:
        """Change a running solve if `fence` is still its number."""
        done = self._session.execute(
            update(Solve)
            .where(Solve.id == solve_id, Solve.fence == fence, Solve.state == "running")
            .values(**values)
            .execution_options(synchronize_session=False)
        )
        assert isinstance(done, CursorResult)
        return bool(done.rowcount)


def _turns(free: ColumnElement[bool]) -> Subquery:
    """Of the free solves: the turn in which each comes, and when its project had its last one.

    A project with n solves under way has had its first n turns, so that its oldest free solve comes in turn n + 1.
    """
    other = aliased(Solve)
    under_way = (
        select(other.project_id, func.count().label("count"))
        .where(_live(other), other.state == "running", other.lease_until >= epoch_now())
        .group_by(other.project_id)
        .subquery()
    )
    served = select(func.max(other.started_at)).where(other.project_id == Solve.project_id).scalar_subquery()
    place = func.row_number().over(partition_by=Solve.project_id, order_by=Solve.id)
    return (
        select(
            Solve.id,
            (place + func.coalesce(under_way.c.count, 0)).label("turn"),
            served.label("served"),
        )
        .outerjoin(under_way, under_way.c.project_id == Solve.project_id)
        .where(free)
        .subquery()
    )


def _shown_as(state: str) -> tuple[ColumnElement[bool], ...]:
    """Of a solve that callers see in a state (`Solve.shown`)."""
    if state == "cancelling":
        return Solve.cancel_requested.is_(True), Solve.state.in_(LIVE_STATES)
    return Solve.state == state, or_(~Solve.cancel_requested, Solve.state.not_in(LIVE_STATES))


def _filtered(project_id: str, filters: Filters) -> Select[Solve]:
    query = select(Solve).where(Solve.project_id == project_id, Solve.verb == filters.verb)
    if filters.state is not None:
        query = query.where(*_shown_as(filters.state))
    if filters.model is not None:
        query = query.where(Solve.model == filters.model)
    query = filters.created.of(query, Solve.created_at)
    if filters.status is not None:
        query = query.join(StoredPlan, StoredPlan.id == Solve.id).where(StoredPlan.status == filters.status)
    if filters.tag is not None:
        query = query.join(Tag, Tag.plan_id == Solve.id).where(Tag.name == filters.tag)
    return query
