"""From errors to HTTP: the one place that knows status codes. Bodies are RFC 9457 problem+json."""

import math
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, Final

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from cost_models.errors import MeshwrightError, MissingCalibration, SpecError, UnknownName
from cost_models.specs.base import MOST_PLACES, by_field, places
from planner.errors import ExportUnsupported
from service import errors
from service.problem_kinds import (
    BUSY,
    CANCELLED,
    CONFLICT,
    FORBIDDEN,
    HTTP,
    INTERNAL,
    INVALID,
    KEY_REUSED,
    MEDIA,
    METHOD,
    NOT_EXPORTABLE,
    NOT_FOUND,
    NOT_INLINE,
    NOT_READY,
    PROVIDER,
    QUOTA,
    RATE_LIMITED,
    SOLVE_FAILED,
    TIMED_OUT,
    TOO_LARGE,
    UNAUTHENTICATED,
    UNAVAILABLE,
    UNCALIBRATED,
    UNREADABLE,
    Kind,
)
from solver.errors import LimitReached

MEDIA_TYPE: Final = "application/problem+json"
_log = structlog.get_logger(__name__)


class FieldProblem(BaseModel):
    """One complaint about the request's body, query or headers."""

    pointer: str = Field(description="JSON Pointer (RFC 6901) into the body, or `#query/name`, `#header/name`")
    detail: str


class Problem(BaseModel):
    """RFC 9457."""

    model_config = ConfigDict(frozen=True)

    type: str = Field(description="a page that explains this kind of problem", examples=["/problems/invalid-request"])
    title: str
    status: int
    detail: str
    instance: str | None = Field(default=None, description="id of the request, as in the header X-Request-Id")
    errors: tuple[FieldProblem, ...] = ()


_OF_ERROR: Final[tuple[tuple[type[MeshwrightError], Kind], ...]] = (
    # First match wins: leaves before their bases.
    (errors.NotInline, NOT_INLINE),
    (errors.Pointed, INVALID),
    (errors.Unstorable, INVALID),
    (errors.NotFound, NOT_FOUND),
    (errors.Conflict, CONFLICT),
    (errors.KeyReused, KEY_REUSED),
    (errors.Cancelled, CANCELLED),
    (errors.StorageUnavailable, UNAVAILABLE),
    (errors.NotReady, NOT_READY),
    (errors.Unauthenticated, UNAUTHENTICATED),
    (errors.ProviderUnavailable, PROVIDER),
    (errors.Forbidden, FORBIDDEN),
    (errors.RateLimited, RATE_LIMITED),
    (errors.Busy, BUSY),
    (errors.TooMuch, QUOTA),
    (errors.SolveTimedOut, TIMED_OUT),
    (errors.SolveFailed, SOLVE_FAILED),
    (ExportUnsupported, NOT_EXPORTABLE),
    (MissingCalibration, UNCALIBRATED),
    (UnknownName, INVALID),
    (SpecError, INVALID),
    (LimitReached, TIMED_OUT),
    (MeshwrightError, SOLVE_FAILED),
)
_OF_STATUS: Final = {kind.status: kind for kind in (NOT_FOUND, METHOD, TOO_LARGE, MEDIA)}


class UnreadableBody(HTTPException):
    """The body is no acceptable JSON. An HTTPException: FastAPI makes a 400 of anything else that a parser raises."""

    def __init__(self, detail: str) -> None:
        """Say what is wrong with it."""
        super().__init__(UNREADABLE.status, detail)


class NotJson(HTTPException):
    """The body is not declared as JSON."""

    def __init__(self, stated: str | None) -> None:
        """Name the media type that was stated."""
        super().__init__(MEDIA.status, f"the Content-Type is {stated or 'missing'}, not application/json")


class BodyTooLarge(HTTPException):
    """The body is longer than this installation reads."""

    def __init__(self, limit: int) -> None:
        """State the limit. [bytes]"""
        super().__init__(TOO_LARGE.status, f"the body is longer than {limit} bytes")


class BodyTooSlow(HTTPException):
    """The body does not come."""

    def __init__(self, seconds: float) -> None:
        """State how long it was waited for."""
        said = f"the body did not come to its end within {seconds:g} s"
        super().__init__(HTTPStatus.REQUEST_TIMEOUT, said, {"Connection": "close"})


class Misdirected(HTTPException):
    """The request was meant for another machine."""

    def __init__(self) -> None:
        """Say which names are answered to."""
        super().__init__(
            HTTPStatus.MISDIRECTED_REQUEST, "the Host header names another machine; ask for localhost or 127.0.0.1"
        )


def problem(kind: Kind, detail: str, fields: tuple[FieldProblem, ...] = (), instance: str | None = None) -> Problem:
    """A problem of a kind."""
    return Problem(
        type=f"/problems/{kind.slug}",
        title=kind.title,
        status=kind.status,
        detail=" ".join(detail.split()),
        instance=instance,
        errors=fields,
    )


def problem_of(error: MeshwrightError) -> Problem:
    """The problem of a deliberate error."""
    kind = next(kind for known, kind in _OF_ERROR if isinstance(error, known))
    if isinstance(error, errors.StorageUnavailable) and not isinstance(error, errors.NotUpgraded):
        return problem(kind, kind.about)  # what the database said names hosts and files; the log has it
    return problem(kind, str(error), _fields_of(error))


def _fields_of(error: MeshwrightError) -> tuple[FieldProblem, ...]:
    """Where a deliberate error points."""
    if isinstance(error, errors.Pointed):
        return (FieldProblem(pointer=error.pointer, detail=str(error)),)
    if isinstance(error, SpecError):
        return tuple(FieldProblem(pointer=_pointer(keys), detail=text) for keys, text in error.places)
    return ()


def _pointer(keys: Iterable[str]) -> str:
    """JSON Pointer (RFC 6901)."""
    return "".join("/" + key.replace("~", "~0").replace("/", "~1") for key in keys)


def response(found: Problem, headers: Mapping[str, str] | None = None, *, instance: str | None = None) -> Response:
    """The problem as a response."""
    body = found.model_copy(update={"instance": found.instance or instance})
    retry = {"Retry-After": "5"} if found.status in {BUSY.status, UNAVAILABLE.status, QUOTA.status} else {}
    text = body.model_dump_json(exclude_none=True)
    return Response(text, found.status, media_type=MEDIA_TYPE, headers={**retry, **(headers or {})})


def _bare(status: HTTPStatus, detail: str) -> bytes:
    """An answer for whoever has not said a whole request; the connection is closed with it."""
    found = problem(HTTP.model_copy(update={"status": int(status)}), detail)
    body = found.model_dump_json(exclude_none=True).encode()
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"content-type: {MEDIA_TYPE}",
        f"content-length: {len(body)}",
        "connection: close",
    )
    return "\r\n".join((*head, "", "")).encode() + body


LONG_HEAD: Final = _bare(
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the request line and its headers are longer than this service reads"
)
SLOW_HEAD: Final = _bare(HTTPStatus.REQUEST_TIMEOUT, "the request line and its headers did not come in time")
NO_HTTP: Final = _bare(HTTPStatus.BAD_REQUEST, "this is no HTTP/1.1 request that can be read")


def refused(error: MeshwrightError, scope: Mapping[str, Any]) -> Response:
    """A deliberate error as a response, with the headers that belong to it."""
    headers = {}
    if isinstance(error, errors.Unauthenticated):
        headers["WWW-Authenticate"] = 'Bearer realm="meshwright"'
    if isinstance(error, errors.RateLimited):
        headers["Retry-After"] = str(math.ceil(error.seconds))
    if isinstance(error, errors.StorageUnavailable):
        _log.error("the database is not available", reason=str(error))
    return response(problem_of(error), headers, instance=request_id(scope))


def request_id(scope: Mapping[str, Any]) -> str | None:
    """The id of the request, given by the middleware."""
    found = scope.get("state", {}).get("request_id")
    return None if found is None else str(found)


def problem_of_refusal(error: HTTPException, scope: Mapping[str, Any]) -> Problem:
    """The problem of what the web framework, or a check before it, refused."""
    if isinstance(error, UnreadableBody):
        kind = UNREADABLE
    else:
        kind = _OF_STATUS.get(error.status_code, HTTP.model_copy(update={"status": error.status_code}))
    return problem(kind, str(error.detail), instance=request_id(scope))


def install(app: FastAPI) -> None:
    """Every error leaves as problem+json."""
    app.add_exception_handler(MeshwrightError, _deliberate)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unexpected)


def documented(*kinds: Kind) -> dict[int | str, dict[str, Any]]:
    """The `responses=` of a route that can fail in these ways, with an example of each (`service.document`)."""
    found: dict[int | str, dict[str, Any]] = {}
    for status in sorted({kind.status for kind in kinds}):
        own = [kind for kind in kinds if kind.status == status]
        content = {
            "schema": {"$ref": "#/components/schemas/Problem"},
            "examples": {k.slug: {"$ref": f"#/components/examples/{k.slug}"} for k in own},
        }
        found[str(status)] = {"description": "; ".join(k.title for k in own), "content": {MEDIA_TYPE: content}}
    return found


async def _deliberate(request: Request, error: Exception) -> Response:
    assert isinstance(error, MeshwrightError)
    return refused(error, request.scope)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    complaints = error.errors()
    body_field = getattr(request.scope.get("route"), "body_field", None)
    model = None if body_field is None else body_field.field_info.annotation
    of_body = [{**found, "loc": found["loc"][1:]} for found in complaints if found["loc"][0] == "body"]
    others = [found for found in complaints if found["loc"][0] != "body"]
    told = by_field(of_body, error.body)
    fields = [FieldProblem(pointer=_pointer(keys), detail=text) for keys, text in places(told, model)]
    fields += [_beside(found) for found in others[:MOST_PLACES]]
    more = f" (and {count - 1} more)" if (count := len(told) + len(others)) > 1 else ""
    first = fields[0]
    where = first.pointer.removeprefix("/").replace("/", ".")
    detail = f"{where or 'the body'}: {first.detail}{more}"
    return response(problem(INVALID, detail, tuple(fields), request_id(request.scope)))


def _beside(found: Mapping[str, Any]) -> FieldProblem:
    """What is wrong beside the body: in the query, in a header."""
    place, *keys = found["loc"]
    return FieldProblem(pointer=f"#{place}{_pointer(map(str, keys))}", detail=str(found["msg"]))


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return response(problem_of_refusal(error, request.scope), error.headers)


async def _unexpected(request: Request, error: Exception) -> Response:
    _log.error("request failed", error=type(error).__name__, path=request.url.path, exc_info=error)
    return response(problem(INTERNAL, "the service failed on this request", instance=request_id(request.scope)))
