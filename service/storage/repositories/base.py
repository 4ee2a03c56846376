"""What repositories share: a session, and pages of rows newest first."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Generic, NamedTuple, TypeVar

from sqlalchemy import Row as Found
from sqlalchemy import Select
from sqlalchemy.orm import InstrumentedAttribute, Session

Row = TypeVar("Row")
SNAPSHOT: Final = "meshwright_snapshot"
"""Key of `Session.info`: what was asked in a transaction that sees one instant. Missing: it may see changes."""


class Created(NamedTuple):
    """When rows were made that are listed."""

    after: datetime | None = None
    before: datetime | None = None

    def of(self, query: Select[Row], made: InstrumentedAttribute[datetime]) -> Select[Row]:
        """The rows of `query` that were made then."""
        if self.after is not None:
            query = query.where(made > _utc(self.after))
        return query if self.before is None else query.where(made < _utc(self.before))


ALWAYS: Final = Created()


def _utc(instant: datetime) -> datetime:
    """The instant in UTC; at the ends of the calendar, where there is no such day, the end itself."""
    try:
        return instant.astimezone(UTC)
    except OverflowError:
        return instant.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    """Some rows, and after which id the next ones come."""

    rows: Sequence[Row]
    next_after: str | None


class Repository:
    """Queries over one open transaction."""

    def __init__(self, session: Session) -> None:
        """Over `session`."""
        self._session = session

    def _first(self, query: Select[Any], **values: str) -> Found[Any] | None:
        """The first row of a query that is built once. In a snapshot equal questions have one answer: asked once."""
        answers: dict[tuple[Any, ...], Found[Any] | None] | None = self._session.info.get(SNAPSHOT)
        if answers is None:
            return self._session.execute(query, values).first()
        key = (id(query), *values.values())
        if key not in answers:
            answers[key] = self._session.execute(query, values).first()
        return answers[key]

    def _page(self, query: Select[Row], key: InstrumentedAttribute[str], after: str | None, size: int) -> Page[Row]:
        """Rows newest first (ids sort by time), those older than `after`."""
        if after is not None:
            query = query.where(key < after)
        rows = self._session.scalars(query.order_by(key.desc()).limit(size + 1)).all()
        more = len(rows) > size
        rows = rows[:size]
        last: Any = rows[-1] if more else None
        return Page(rows, None if last is None else str(getattr(last, key.key)))
