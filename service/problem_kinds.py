"""The kinds of problems, each with its page, title and status. `service.problems` says which error is which."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from pydantic import BaseModel, ConfigDict


class Kind(BaseModel):
    """A kind of problem: its page, its title, its status."""

    model_config = ConfigDict(frozen=True)

    slug: str
    title: str
    status: int
    about: str


def _kind(slug: str, status: HTTPStatus, title: str, about: str) -> Kind:
    return Kind(slug=slug, title=title, status=int(status), about=about)


INVALID: Final = _kind(
    "invalid-request",
    HTTPStatus.UNPROCESSABLE_ENTITY,
    "The request breaks a rule",
    "A key is unknown, a value is out of range, or two numbers contradict each other. `errors` points at each place.",
)
UNREADABLE: Final = _kind(
    "unreadable-body",
    HTTPStatus.UNPROCESSABLE_ENTITY,
    "The body cannot be read",
    "The body is not one JSON object in UTF-8, repeats a key, nests too deep, or holds a number JSON cannot carry.",
)
NOT_INLINE: Final = _kind(
    "not-inline",
    HTTPStatus.UNPROCESSABLE_ENTITY,
    "The request names a file or a download",
    "Over HTTP a model is given by preset, by its numbers, or by the contents of its config.json.",
)
UNCALIBRATED: Final = _kind(
    "missing-calibration",
    HTTPStatus.UNPROCESSABLE_ENTITY,
    "A cost term has no data",
    "No measured, cited or fitted constant covers this device or framework; nothing is guessed.",
)
UNAUTHENTICATED: Final = _kind(
    "unauthenticated",
    HTTPStatus.UNAUTHORIZED,
    "Who asks is not known",
    "Send `Authorization: Bearer KEY` with a key of `meshwright keys create` that is not expired or revoked.",
)
FORBIDDEN: Final = _kind(
    "forbidden", HTTPStatus.FORBIDDEN, "The key's scopes do not allow this", "Ask with a key of the scope in `detail`."
)
RATE_LIMITED: Final = _kind(
    "rate-limited",
    HTTPStatus.TOO_MANY_REQUESTS,
    "The key is used too often",
    "Try again after the seconds in `Retry-After`.",
)
QUOTA: Final = _kind(
    "quota",
    HTTPStatus.TOO_MANY_REQUESTS,
    "The project has too much under way",
    "One project may not take all of this installation. Try again when some of its requests have ended.",
)
NOT_FOUND: Final = _kind("not-found", HTTPStatus.NOT_FOUND, "Not found", "Nothing is stored or served under this name.")
NOT_READY: Final = _kind(
    "not-ready", HTTPStatus.CONFLICT, "There is no plan yet", "The plan is still being made, or its solve failed."
)
NOT_EXPORTABLE: Final = _kind(
    "export-unsupported",
    HTTPStatus.CONFLICT,
    "The target cannot express this plan",
    "Ask with `allow_lossy=true` to get what can be said, with each loss as a comment.",
)
TOO_LARGE: Final = _kind(
    "body-too-large", HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The body is too large", "A request is a few kilobytes."
)
MEDIA: Final = _kind(
    "unsupported-media-type",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    "The body is not declared as JSON",
    "Send `Content-Type: application/json`.",
)
CONFLICT: Final = _kind(
    "conflict",
    HTTPStatus.CONFLICT,
    "It is there already, or changed meanwhile",
    "Something of that name exists, or what exists cannot be changed in this way.",
)
KEY_REUSED: Final = _kind(
    "idempotency-key-reused",
    HTTPStatus.UNPROCESSABLE_ENTITY,
    "The key came with another request",
    "An `Idempotency-Key` stands for one request: a repetition has the same body, another request another key.",
)
CANCELLED: Final = _kind(
    "cancelled", HTTPStatus.GONE, "The plan was cancelled", "Somebody stopped it before it was made; ask again."
)
UNAVAILABLE: Final = _kind(
    "storage-unavailable",
    HTTPStatus.SERVICE_UNAVAILABLE,
    "Nothing can be stored or looked up now",
    "The database is away, full or cannot be written. What was accepted is kept; try again later.",
)
PROVIDER: Final = _kind(
    "provider-unavailable",
    HTTPStatus.SERVICE_UNAVAILABLE,
    "Bearer tokens cannot be checked now",
    "The OIDC provider does not answer; API keys still work. Try again after the seconds in `Retry-After`.",
)
METHOD: Final = _kind(
    "method-not-allowed",
    HTTPStatus.METHOD_NOT_ALLOWED,
    "The method is not allowed here",
    "The header `Allow` lists the methods of this path.",
)
BUSY: Final = _kind(
    "busy", HTTPStatus.SERVICE_UNAVAILABLE, "Too much is waiting", "Try again after the seconds in `Retry-After`."
)
NOT_SERVING: Final = _kind(
    "not-serving",
    HTTPStatus.SERVICE_UNAVAILABLE,
    "Requests would not be worked on now",
    "`checks` says of each part whether it is well, and why not.",
)
SOLVE_FAILED: Final = _kind(
    "solve-failed",
    HTTPStatus.INTERNAL_SERVER_ERROR,
    "The solve ended without an answer",
    "The request was accepted, but the work on it stopped: a limit of this installation, or a process that died.",
)
TIMED_OUT: Final = _kind(
    "solve-timed-out",
    HTTPStatus.GATEWAY_TIMEOUT,
    "The solve reached its limit",
    "No plan was found within the budget and none was proven impossible; restrict the request or raise the limit.",
)
INTERNAL: Final = _kind(
    "internal-error",
    HTTPStatus.INTERNAL_SERVER_ERROR,
    "Something broke",
    "A bug; the log has it under the request's id.",
)
HTTP: Final = _kind("http-error", HTTPStatus.BAD_REQUEST, "The request was refused", "See `detail`.")

KINDS: Final[Mapping[str, Kind]] = {
    kind.slug: kind
    for kind in (
        *(INVALID, UNREADABLE, NOT_INLINE, UNCALIBRATED, NOT_FOUND, NOT_READY, NOT_EXPORTABLE),
        *(UNAUTHENTICATED, FORBIDDEN, RATE_LIMITED, QUOTA, PROVIDER),
        *(CONFLICT, KEY_REUSED, CANCELLED, UNAVAILABLE),
        *(NOT_SERVING, TOO_LARGE, MEDIA, METHOD, BUSY, SOLVE_FAILED, TIMED_OUT, INTERNAL, HTTP),
    )
}
