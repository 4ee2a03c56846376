"""Cursor pagination: pages newest first, each naming the next; new rows never shift what is still to come."""

import base64
import hashlib
from collections.abc import Iterable
from typing import Annotated, Final

from fastapi import Depends, Query, Request, Response
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from service.errors import Pointed
from service.storage.repositories.base import Created

LARGEST_PAGE = 200
SEAL_BYTES: Final = 6
"""Of a token: enough that nothing else is taken for one. It is no secret: a token opens nothing."""


class Paged(BaseModel):
    """A page; its items are named by the class below."""

    model_config = ConfigDict(frozen=True)

    next_page_token: str | None = Field(default=None, description="of the next page; missing on the last one")


class Cursor:
    """Where a page begins, its length, and how the next one is named."""

    def __init__(self, after: str | None, size: int, request: Request, response: Response) -> None:
        """Rows after a key; the answer gets a `Link` to the next page."""
        self.after = after
        self.size = size
        self._request, self._response = request, response

    def some(self, names: Iterable[str], text: str = "") -> tuple[list[str], str | None]:
        """Names that hold `text`, in their order, as many as a page has; and after which the next ones come."""
        left = sorted(name for name in set(names) if text.lower() in name and (self.after is None or name > self.after))
        more = len(left) > self.size
        return left[: self.size], left[self.size - 1] if more else None

    def next(self, after: str | None) -> str | None:
        """The token of the page that begins after a key, also as a `Link` (RFC 8288)."""
        if after is None:
            return None
        token = _token(self._request, after)
        address = self._request.url.include_query_params(page_token=token)
        self._response.headers["Link"] = f'<{address.path}?{address.query}>; rel="next"'
        return token


async def _cursor(
    request: Request,
    response: Response,
    page_size: Annotated[int, Query(ge=1, le=LARGEST_PAGE)] = 50,
    page_token: Annotated[str | None, Query(max_length=500, description="`next_page_token` of the page before")] = None,
) -> Cursor:
    after = None if page_token is None else _after(request, page_token)
    return Cursor(after, page_size, request, response)


def _token(request: Request, after: str) -> str:
    """Where the next page of a list begins, under a seal of which list that is."""
    text = after.encode()
    seal = hashlib.blake2b(request.url.path.encode() + b"\n" + text, digest_size=SEAL_BYTES).digest()
    return base64.urlsafe_b64encode(seal + text).decode("ascii")


def _after(request: Request, token: str) -> str:
    """Where the page of a token begins.

    Raises:
        Pointed: it is no token of this list.
    """
    try:
        after = base64.urlsafe_b64decode(token.encode("ascii"))[SEAL_BYTES:].decode("utf-8")
    except ValueError:
        after = ""
    if _token(request, after) != token:
        rule = f"page_token is none that {request.url.path} gave; take next_page_token of the page before"
        raise Pointed("#query/page_token", rule)
    return after


async def _created(created_after: AwareDatetime | None = None, created_before: AwareDatetime | None = None) -> Created:
    return Created(created_after, created_before)


CreatedWhen = Annotated[Created, Depends(_created)]
Text = Annotated[str, Query(description="only names that contain this", max_length=100)]
PageCursor = Annotated[Cursor, Depends(_cursor)]
