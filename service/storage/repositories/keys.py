"""Idempotency keys."""

from service.storage.repositories.base import Repository
from service.storage.tables import IdempotencyKey


class Keys(Repository):
    """What each key made."""

    def get(self, project_id: str, key: str) -> IdempotencyKey | None:
        """The record of a key."""
        return self._session.get(IdempotencyKey, (project_id, key))

    def add(self, project_id: str, key: str, request_sha256: str, made: str) -> None:
        """Remember what a key made, in the transaction that makes it."""
        self._session.add(IdempotencyKey(project_id=project_id, key=key, request_sha256=request_sha256, made=made))
        self._session.flush()
