"""Talk to a Meshwright service over HTTP; this package knows its address and nothing of its code."""

import http.client
import json
import os
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Final

from cost_models.errors import SpecError
from executor.errors import ServiceAway, ServiceRefused

ADDRESS: Final = "MESHWRIGHT_SERVICE"
"""Environment variable with the service's URL."""
KEY: Final = "MESHWRIGHT_API_KEY"
"""Environment variable with the caller's key: read here, never passed on, shown or logged."""
TIMEOUT_SECONDS: Final = 10.0
_DONE: Final = 200
_TRY_LATER: Final = frozenset({408, 425, 429})


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Stays at the address that was given: urllib would turn a post into a read, whose 200 looks as if it had been
    taken, and would hand the key to wherever the answer points.
    """

    def redirect_request(self, *_: Any) -> None:
        """None: the answer is an error like others."""


_OPENER: Final = urllib.request.build_opener(_NoRedirects)


def check_address(service: str) -> None:
    """Hold a service's address against what can be asked, before anything is run for it.

    Raises:
        SpecError: it is no http or https URL of a host.
    """
    try:
        parts = urllib.parse.urlsplit(service)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError as error:  # brackets or a port that are none
        raise SpecError(f"{service!r} is no address of a service: {error}") from None
    if not usable or any(character.isspace() or ord(character) < 32 for character in service):
        raise SpecError(f"{service!r} is no http or https address of a service, such as http://localhost:8000")


def post(service: str, path: str, body: dict[str, Any], *, idempotency_key: str) -> bytes:
    """POST a JSON object; the service's answer. The same key twice has the effect of once.

    Raises:
        SpecError: `service` is no address.
        ServiceAway: no answer, or one that says to try later.
        ServiceRefused: the service found the request wrong.
    """
    headers = {"Content-Type": "application/json", "Idempotency-Key": idempotency_key}
    return _ask(service, path, headers, json.dumps(body).encode())[1]


def get_plan(service: str, plan_id: str) -> bytes:
    """A finished plan as the service keeps it.

    Raises:
        ServiceAway: no answer, or the plan is still being made.
        ServiceRefused: no such plan, or none was found.
    """
    path = f"/v1/plans/{urllib.parse.quote(plan_id, safe='')}"
    status, content = _ask(service, path, {"Accept": "application/json"}, None)
    if status != _DONE:
        raise ServiceAway(f"{service} is still making the plan {plan_id}: try again later")
    return content


def _ask(service: str, path: str, headers: dict[str, str], body: bytes | None) -> tuple[int, bytes]:
    """Status and content of the answer."""
    check_address(service)
    if not path.startswith("/"):
        raise ServiceRefused(f"{path!r} is no path at a service, which begins with /")
    if key := os.environ.get(KEY):
        headers = {**headers, "Authorization": f"Bearer {key}"}
    url = service.rstrip("/") + path
    request = urllib.request.Request(url, body, headers, method="GET" if body is None else "POST")
    try:
        with _OPENER.open(request, timeout=TIMEOUT_SECONDS) as answer:
            return int(answer.status), bytes(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            said = f"{url} answered {error.code}: {_detail(error)}"
        if 300 <= error.code < 400:
            where = error.headers.get("Location", "elsewhere")
            raise ServiceAway(
                f"{url} answered {error.code}: it moved to {where}; give the address it has now"
            ) from None
        if error.code >= 500 or error.code in _TRY_LATER:
            raise ServiceAway(said) from None
        raise ServiceRefused(said) from None
    except http.client.InvalidURL as error:
        raise ServiceRefused(f"{url!r} is no address: {error}") from None
    except (OSError, http.client.HTTPException) as error:
        raise ServiceAway(f"{url} does not answer: {error}") from None


def _detail(error: urllib.error.HTTPError) -> str:
    """What problem+json says (RFC 9457), else the reason phrase."""
    try:
        problem = json.loads(error.read(65536))
        return str(problem.get("detail") or problem.get("title"))
    except (OSError, ValueError, AttributeError):
        return str(error.reason)
