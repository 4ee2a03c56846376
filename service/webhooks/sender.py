"""The outbox: takes messages that are due, posts them, and tries again over days."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

import httpcore2
import structlog
from standardwebhooks import Webhook

from planner.version import __version__
from service.storage.database import Database
from service.storage.repositories import Repositories
from service.storage.tables import Delivery, Solve
from service.webhooks.addresses import Allowed, PublicBackend, Refused

PAUSES: Final = (5.0, 300.0, 1800.0, 7200.0, 18000.0, 36000.0, 50400.0, 72000.0, 86400.0)
"""Between tries, as Standard Webhooks suggests; then the message is given up. [seconds]"""
TIMEOUT_SECONDS: Final = 15.0
CLAIM_SECONDS: Final = 60.0
"""A replica that took a message and fell silent is succeeded after this."""
MOST: Final = 10
"""Messages that are on their way at the same time."""
SHARE: Final = 3
"""Of them, those of one project."""
GONE: Final = 410
"""The receiver says that nobody is there any more."""
_log = structlog.get_logger(__name__)


class Sender:
    """Sends the messages of one process."""

    def __init__(self, database: Database, secret: str, allowed: Allowed, *, poll_seconds: float) -> None:
        """Sign with `secret`, as `whsec_` and base64."""
        self._database, self._poll = database, poll_seconds
        self._sign = Webhook(secret)
        self._http = httpcore2.AsyncConnectionPool(
            max_connections=MOST, max_keepalive_connections=0, network_backend=PublicBackend(allowed)
        )
        self._loop: asyncio.Task[None] | None = None
        self._sends: dict[asyncio.Task[None], str] = {}
        """On their way, with their projects."""
        self._room = asyncio.Event()

    async def start(self) -> None:
        """Begin to look at the outbox."""
        self._loop = asyncio.create_task(self._sending())

    async def close(self) -> None:
        """Stop; what is unsent is sent by the next process."""
        if self._loop is not None:
            self._loop.cancel()
            for send in self._sends:
                send.cancel()
            await asyncio.gather(self._loop, *self._sends, return_exceptions=True)
        with suppress(Exception):
            await self._http.aclose()

    async def _sending(self) -> None:
        while True:
            self._room.clear()
            sent = 0
            try:
                sent = await self._begin()
            except Exception as error:  # the loop goes on whatever happens
                _log.warning("messages could not be read", error=f"{type(error).__name__}: {error}")
            if not sent:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._poll):  # wait_for of Python 3.11 may swallow the end
                        await self._room.wait()

    async def _begin(self) -> int:
        """Send what is due and has room; how many."""
        room = MOST - len(self._sends)
        if room <= 0:
            return 0
        busy = {project for project, count in Counter(self._sends.values()).items() if count >= SHARE}
        due = await self._database.writing(lambda work: _due(work, room, busy))
        for delivery, body, request_id in due:
            task = asyncio.create_task(self._send(delivery, body, request_id))
            self._sends[task] = delivery.project_id
            task.add_done_callback(self._sent)
        return len(due)

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._sends.pop(task, None)
        self._room.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.warning("a message could not be settled; it is tried again", error=f"{type(error).__name__}: {error}")

    async def _send(self, delivery: Delivery, body: str, request_id: str | None) -> None:
        host = httpcore2.URL(delivery.url).host.decode("ascii", "replace")
        log = _log.bind(delivery=delivery.id, plan_id=delivery.solve_id, request_id=request_id, host=host)
        try:
            status = await self._post(delivery.id, delivery.url, body)
            error = None if 200 <= status < 300 else f"answered {status}"
            over = status == GONE
        except Refused as refusal:
            error, over = str(refusal), True
        except (httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError, OSError) as failure:
            error, over = f"{type(failure).__name__}: {failure}"[:300], False
        state, again = "delivered", 0.0
        if error is not None:
            over = over or delivery.attempts > len(PAUSES)
            state = "failed" if over else "pending"
            pause = PAUSES[min(delivery.attempts, len(PAUSES)) - 1]
            again = pause * random.uniform(0.8, 1.2)
            log.warning("a message was not taken", error=error, state=state)
        else:
            log.info("a message was taken", attempts=delivery.attempts)
        await self._database.writing(
            lambda work: work.deliveries.settle(delivery.id, state, error=error, again_in=again)
        )

    async def _post(self, message_id: str, url: str, body: str) -> int:
        """The status of the answer, whose content is not read. Redirects are not followed."""
        sent = datetime.now(UTC)
        headers = {
            "content-type": "application/json",
            "user-agent": f"meshwright/{__version__}",
            "webhook-id": message_id,
            "webhook-timestamp": str(int(sent.timestamp())),
            "webhook-signature": self._sign.sign(message_id, sent, body),
        }
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        limits = dict.fromkeys(("connect", "read", "write", "pool"), TIMEOUT_SECONDS)
        async with (
            asyncio.timeout(2 * TIMEOUT_SECONDS),
            self._http.stream(
                "POST", url, headers=_with_host(url, pairs), content=body.encode(), extensions={"timeout": limits}
            ) as answer,
        ):
            return answer.status


def _with_host(url: str, pairs: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    origin = httpcore2.URL(url)
    usual = {b"http": 80, b"https": 443}.get(origin.scheme)
    name = b"[%b]" % origin.host if b":" in origin.host else origin.host  # RFC 3986, section 3.2.2
    return [(b"host", name if origin.port in {None, usual} else b"%b:%d" % (name, origin.port)), *pairs]


def _due(work: Repositories, most: int, busy: Collection[str]) -> list[tuple[Delivery, str, str | None]]:
    """Messages to send now, with their bodies (how each plan ended) and the ids of the requests that asked for them."""
    claimed = work.deliveries.claim(most=most, share=SHARE, busy=busy, seconds=CLAIM_SECONDS)
    due = []
    for delivery in claimed:
        solve = work.solves.get(delivery.project_id, delivery.solve_id)
        body = json.dumps(_message(work, delivery, solve))
        due.append((delivery, body, None if solve is None else solve.request_id))
    return due


def _message(work: Repositories, delivery: Delivery, solve: Solve | None) -> dict[str, Any]:
    plan = work.plans.get(delivery.project_id, delivery.solve_id)
    state = solve.state if solve is not None else "done"
    verb = solve.verb if solve is not None else "plan"
    ended = solve.ended_at if solve is not None else None
    data = {
        "id": delivery.solve_id,
        "state": state,
        "status": None if plan is None else plan.status,
        "location": f"/v1/{verb}s/{delivery.solve_id}",
    }
    return {"type": f"{verb}.{state}", "timestamp": (ended or delivery.created_at).isoformat(), "data": data}
