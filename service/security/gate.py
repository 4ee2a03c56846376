"""The gate before every route: who asks, how often, and the record of what was changed. No body is read before it."""

from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service import metrics
from service.callers import Caller
from service.errors import RateLimited, ServiceError, Unauthenticated
from service.limits import names_this_machine
from service.problems import Misdirected, problem_of_refusal, refused, request_id, response
from service.runtime import Runtime
from service.security.audit import Asked
from service.settings import ServiceSettings

GUARDED: Final = ("/v1", "/metrics")
"""What is refused without a caller before anything of it is read. Every route below asks for one, and no other does."""
_CHANGING: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class Gate:
    """Authenticates, counts and records."""

    def __init__(self, app: ASGIApp, settings: ServiceSettings) -> None:
        """Wrap `app`."""
        self.app = app
        self._per_minute = settings.requests_per_minute
        self._anywhere = settings.authentication == "none"  # somebody has said that whoever gets here may ask

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve."""
        if scope["type"] != "http" or not guarded(scope["path"]):
            await self.app(scope, receive, send)
            return
        parts: Runtime = scope["app"].state.runtime
        caller = None
        try:
            if _in(scope["path"], "/v1"):
                parts.migrated.check()
            known = parts.authenticator
            known_by = known.scraper if scope["path"] == "/metrics" else known.caller
            caller = await known_by(_authorization(scope))
            if caller is None:
                raise Unauthenticated("say who asks: Authorization: Bearer KEY")
            self._count(parts, caller)
        except ServiceError as error:
            metrics.REFUSED.labels(type(error).__name__).inc()
            answer = refused(error, scope)
            if isinstance(error, Unauthenticated | RateLimited):  # else it is our database that refuses
                shown = error.shown if isinstance(error, Unauthenticated) else caller
                scope["state"]["shown"] = shown
                parts.audit.refused(shown, _asked(scope, "authenticate", answer.status_code))
            await answer(scope, receive, send)
            return
        if caller.shows == "nothing" and not self._anywhere and not names_this_machine(scope):
            metrics.REFUSED.labels(Misdirected.__name__).inc()
            await response(problem_of_refusal(Misdirected(), scope))(scope, receive, send)
            return
        scope["state"]["caller"] = scope["state"]["shown"] = caller
        if scope["method"] not in _CHANGING:
            await self.app(scope, receive, send)
            return
        await self._recorded(parts, caller, scope, receive, send)

    def _count(self, parts: Runtime, caller: Caller) -> None:
        allowed = caller.requests_per_minute or self._per_minute
        if caller.key_id is None or allowed is None:
            return
        if (seconds := parts.rates.wait(caller.key_id, allowed)) > 0:
            raise RateLimited(f"this key may ask {allowed} times a minute", seconds)

    async def _recorded(self, parts: Runtime, caller: Caller, scope: Scope, receive: Receive, send: Send) -> None:
        status = 0

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, noting)
        finally:
            parts.audit.note(caller, _asked(scope, _operation(scope) or scope["method"], status))


def guarded(path: str) -> bool:
    """Whether nobody gets there unnamed."""
    return any(_in(path, prefix) for prefix in GUARDED)


def _in(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(f"{prefix}/")


def _asked(scope: Scope, action: str, status: int) -> Asked:
    client = scope.get("client")
    return Asked(action, scope["path"], status, request_id(scope), None if client is None else str(client[0]))


def _authorization(scope: Scope) -> str | None:
    stated = [value for name, value in scope["headers"] if name == b"authorization"]
    if len(stated) > 1:
        raise Unauthenticated("Authorization is stated more than once")
    return stated[0].decode("latin-1") if stated else None


def _operation(scope: Scope) -> str | None:
    route: Any = scope.get("route")
    return getattr(route, "name", None)
