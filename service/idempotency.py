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
    asked = hashlib.sha256(f"{what}\n{body.model_dump_json()}".encode()).hexdigest()
    if key is not None and (record := work.keys.get(caller.project_id, key)) is not None:
        if record.request_sha256 != asked:
            before = f"the request of SHA-256 {record.request_sha256[:12]}..., which made {record.made}"
            raise KeyReused(f"the Idempotency-Key {key!r} stands for {before}; this request's is {asked[:12]}...")
        return record.made, False
    made = make()
    if key is not None:
        work.keys.add(caller.project_id, key, asked, made)
    return made, True
