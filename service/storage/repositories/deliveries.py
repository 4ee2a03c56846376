"""Messages to webhooks, until they are taken or given up."""

from collections.abc import Collection, Sequence

from sqlalchemy import func, select, update

from service.storage.dialects import epoch_now, unlocked
from service.storage.repositories.base import Repository
from service.storage.tables import Delivery, Solve


class Deliveries(Repository):
    """The outbox."""

    def add(self, delivery: Delivery) -> None:
        """Promise a message, in the transaction that accepts the request."""
        self._session.add(delivery)
        self._session.flush()

    def promised(self, solve_id: str, url: str) -> bool:
        """Whether a message about a solve is promised, on its way or taken there; one that was given up is none.

        Holds the solve, so that equal requests at the same time ask one after the other.
        """
        self._session.execute(select(Solve.id).where(Solve.id == solve_id).with_for_update())
        own = (Delivery.solve_id == solve_id, Delivery.url == url, Delivery.state != "failed")
        return self._session.scalar(select(Delivery.id).where(*own).limit(1)) is not None

    def release(self, solve_id: str) -> None:
        """Send what was promised, in the transaction that ends the solve."""
        own = (Delivery.solve_id == solve_id, Delivery.state == "waiting")
        self._session.execute(
            update(Delivery)
            .where(*own)
            .values(state="pending", next_at=epoch_now())
            .execution_options(synchronize_session=False)
        )

    def count_unsent(self, project_id: str) -> int:
        """Promised or due, of one project."""
        own = (Delivery.project_id == project_id, Delivery.state.in_(("waiting", "pending")))
        return self._session.scalar(select(func.count()).select_from(Delivery).where(*own)) or 0

    def claim(self, *, most: int, share: int, busy: Collection[str], seconds: float) -> Sequence[Delivery]:
        """Messages that are due; no other replica sees them for so long.

        At most `share` of a project at once, and none of the `busy` ones: slow receivers of one hold up no other's.
        """
        due = (Delivery.state == "pending", Delivery.next_at <= epoch_now(), Delivery.project_id.not_in(busy))
        turn = func.row_number().over(partition_by=Delivery.project_id, order_by=Delivery.next_at).label("turn")
        turns = select(Delivery.id, turn).where(*due).subquery()
        first = select(turns.c.id).where(turns.c.turn <= share)
        ids = self._session.scalars(
            unlocked(select(Delivery.id).where(Delivery.id.in_(first), *due).order_by(Delivery.next_at).limit(most))
        ).all()
        if not ids:
            return []
        self._session.execute(
            update(Delivery)
            .where(Delivery.id.in_(ids))
            .values(next_at=epoch_now() + seconds, attempts=Delivery.attempts + 1)
            .execution_options(synchronize_session=False)
        )
        return self._session.scalars(select(Delivery).where(Delivery.id.in_(ids))).all()

    def settle(self, delivery_id: str, state: str, *, error: str | None = None, again_in: float = 0.0) -> None:
        """What came of a try."""
        self._session.execute(
            update(Delivery)
            .where(Delivery.id == delivery_id)
            .values(state=state, last_error=error, next_at=epoch_now() + again_in)
            .execution_options(synchronize_session=False)
        )
