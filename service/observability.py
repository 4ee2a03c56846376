"""Logs: structlog through the standard library, one JSON line an event, the request's id in each."""

import logging
import sys
import time
import uuid
from typing import Any

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service import metrics, tracing
from service.redaction import struck

HEADER = "X-Request-Id"
_LONGEST_ID = 64
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def configure(level: str = "INFO", style: str = "auto") -> None:
    """Set up logging of this process, uvicorn's included."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        tracing.identify,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    console = style == "console" or (style == "auto" and sys.stderr.isatty())
    renderer: Any = structlog.dev.ConsoleRenderer() if console else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    last = [structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer, struck]
    if not console:
        last.insert(1, structlog.processors.format_exc_info)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=last))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("alembic").setLevel(logging.WARNING)  # two lines at every look at where the database stands
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers[:] = []
        logger.propagate = name != "uvicorn.access"  # our own line per request says the same with the request's id


def current_request_id() -> str | None:
    """Id of the request that is being answered."""
    found = structlog.contextvars.get_contextvars().get("request_id")
    return None if found is None else str(found)


class RequestLog:
    """Gives every request an id, returns it in a header, and writes one line about the answer."""

    def __init__(self, app: ASGIApp) -> None:
        """Wrap `app`."""
        self.app = app
        self.log = structlog.get_logger("service.request")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id = _stated_id(scope) or uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request_id=request_id)
        started, answered = time.perf_counter(), {"status": 0}

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                answered["status"] = message["status"]
                message["headers"] = [*message.get("headers", ()), (HEADER.lower().encode(), request_id.encode())]
            await send(message)

        try:
            await self.app(scope, receive, noting)
        finally:
            seconds = time.perf_counter() - started
            operation = str(getattr(scope.get("route"), "name", "none"))
            metrics.REQUESTS.labels(operation, _method(scope), answered["status"]).inc()
            metrics.REQUEST_SECONDS.labels(operation).observe(seconds)
            self.log.info(
                "request",
                method=scope["method"],
                path=scope["path"],
                operation=operation,
                seconds=round(seconds, 6),
                **answered,
                **_who(scope),
            )


def _who(scope: Scope) -> dict[str, str | None]:
    """Who asked, from where, as far as the gate knows."""
    client, shown = scope.get("client"), scope["state"].get("shown")
    address = None if client is None else str(client[0])
    if shown is None:
        return {"address": address}
    return {"address": address, "caller": shown.name, "key_id": shown.key_id}


def _method(scope: Scope) -> str:
    """A method of HTTP; others would make a label each."""
    return str(scope["method"]) if scope["method"] in _METHODS else "other"


def _stated_id(scope: Scope) -> str | None:
    """The caller's own id, if it is plain enough to be logged and echoed."""
    stated = next((value for name, value in scope["headers"] if name == HEADER.lower().encode()), b"").decode("latin-1")
    plain = stated.isascii() and stated.replace("-", "").replace("_", "").isalnum()
    return stated if plain and len(stated) <= _LONGEST_ID else None
