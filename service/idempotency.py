"""Once per key: a repeated request makes nothing new."""

import hashlib
from collections.abc import Callable

from pydantic import BaseModel

from service.callers import Caller
from service.errors import KeyReused
from service.storage.repositories import Repositories


def once(
    work: Repositories, caller: Caller, key: str | None, what: str, body: BaseModel, make: Callable[[], str]
) -> tuple[str, bool]:
    """What `make` makes for `body`, or what it made when the key came first; and whether it is new.

    `what` tells requests of equal bodies apart. Key and thing are stored in one transaction.

    Raises:
        KeyReused: the key came with another request.
    """
    if (before := made_before(work, caller, key, what, body)) is not None:
        return before, False
    made = make()
    if key is not None:
        work.keys.add(caller.project_id, key, _sha256(what, body), made)
    return made, True


def made_before(work: Repositories, caller: Caller, key: str | None, what: str, body: BaseModel) -> str | None:
    """What was made when the key came first; None: it never did, or there is none.

    Raises:
        KeyReused: the key came with another request.
    """
    record = None if key is None else work.keys.get(caller.project_id, key)
    if record is None:
        return None
    asked = _sha256(what, body)
    if record.request_sha256 != asked:
        before = f"the request of SHA-256 {record.request_sha256[:12]}..., which made {record.made}"
        raise KeyReused(f"the Idempotency-Key {key!r} stands for {before}; this request's is {asked[:12]}...")
    return record.made


def _sha256(what: str, body: BaseModel) -> str:
    return hashlib.sha256(f"{what}\n{body.model_dump_json()}".encode()).hexdigest()
