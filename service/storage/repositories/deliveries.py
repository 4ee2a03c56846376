"""Messages to webhooks, until they are taken or given up."""

from collections.abc import Sequence

from sqlalchemy import select, update

from service.storage.dialects import epoch_now, unlocked
from service.storage.repositories.base import Repository
from service.storage.tables import Delivery


class Deliveries(Repository):
    """The outbox."""

    def add(self, delivery: Delivery) -> None:
        """Promise a message, in the transaction that accepts the request."""
        self._session.add(delivery)
        self._session.flush()

    def release(self, solve_id: str) -> None:
        """Send what was promised, in the transaction that ends the solve."""
        own = (Delivery.solve_id == solve_id, Delivery.state == "waiting")
        self._session.execute(
            update(Delivery)
            .where(*own)
            .values(state="pending", next_at=epoch_now())
            .execution_options(synchronize_session=False)
        )

    def claim(self, *, most: int, seconds: float) -> Sequence[Delivery]:
        """Messages that are due; no other replica sees them for so long."""
        due = (Delivery.state == "pending", Delivery.next_at <= epoch_now())
        ids = self._session.scalars(
            unlocked(select(Delivery.id).where(*due).order_by(Delivery.next_at).limit(most))
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
