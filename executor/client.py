"""Talk to a Meshwright service over HTTP; this package knows its address and nothing of its code."""

import json
import os
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Final

from executor.errors import ServiceAway, ServiceRefused

ADDRESS: Final = "MESHWRIGHT_SERVICE"
"""Environment variable with the service's URL."""
KEY: Final = "MESHWRIGHT_API_KEY"
"""Environment variable with the caller's key: read here, never passed on, shown or logged."""
TIMEOUT_SECONDS: Final = 10.0
_TRY_LATER: Final = frozenset({408, 425, 429})


def post(service: str, path: str, body: dict[str, Any], *, idempotency_key: str) -> dict[str, Any]:
    """POST a JSON object; the service's answer. The same key twice has the effect of once.

    Raises:
        ServiceAway: no answer, or one that says to try later.
        ServiceRefused: the service found the request wrong.
    """
    if urllib.parse.urlsplit(service).scheme not in {"http", "https"}:
        raise ServiceRefused(f"{service} is no http or https address")
    headers = {"Content-Type": "application/json", "Idempotency-Key": idempotency_key}
    if key := os.environ.get(KEY):
        headers["Authorization"] = f"Bearer {key}"
    url = service.rstrip("/") + path
    request = urllib.request.Request(url, json.dumps(body).encode(), headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
            found: dict[str, Any] = json.loads(answer.read())
            return found
    except urllib.error.HTTPError as error:
        with error:
            said = f"{url} answered {error.code}: {_detail(error)}"
        if error.code >= 500 or error.code in _TRY_LATER:
            raise ServiceAway(said) from None
        raise ServiceRefused(said) from None
    except (OSError, ValueError) as error:
        raise ServiceAway(f"{url} does not answer: {error}") from None


def _detail(error: urllib.error.HTTPError) -> str:
    """What problem+json says (RFC 9457), else the reason phrase."""
    try:
        problem = json.loads(error.read(65536))
        return str(problem.get("detail") or problem.get("title"))
    except (OSError, ValueError, AttributeError):
        return str(error.reason)
