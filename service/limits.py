"""Limits that hold before a body is read, and methods that every resource has."""

import asyncio
import ipaddress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.problems import BodyTooLarge, BodyTooSlow, problem_of_refusal, response


class BodyLimit:
    """Refuses bodies beyond a size: by their declared length at once, else when they have grown too long.

    One that does not come to its end in time is waited for no longer, however often a piece of it comes.
    """

    def __init__(self, app: ASGIApp, max_bytes: int, seconds: float) -> None:
        """Wrap `app`. [bytes] [seconds from when a body is asked for to its end]"""
        self.app = app
        self.max_bytes, self.seconds = max_bytes, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if declared.isdigit() and int(declared) > self.max_bytes:
            refusal = response(problem_of_refusal(BodyTooLarge(self.max_bytes), scope))
            await refusal(scope, receive, send)
            return
        received, whole, deadline = 0, False, 0.0

        async def counting() -> Message:
            nonlocal received, whole, deadline
            if whole:
                return await receive()  # a stream waits here for its watcher to leave
            deadline = deadline or asyncio.get_running_loop().time() + self.seconds
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise BodyTooSlow(self.seconds) from None
            whole = not message.get("more_body", False)
            received += len(message.get("body", b""))
            if received > self.max_bytes:
                raise BodyTooLarge(self.max_bytes)
            return message

        await self.app(scope, counting, send)


class Head:
    """Answers HEAD wherever GET is answered, without the content (RFC 9110, section 9.3.2)."""

    def __init__(self, app: ASGIApp) -> None:
        """Wrap `app`."""
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return

        async def headers_only(message: Message) -> None:
            await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

        await self.app({**scope, "method": "GET"}, receive, headers_only)


def names_this_machine(scope: Scope) -> bool:
    """Whether the `Host` header names the loopback.

    A page of another site can have its own name resolved to 127.0.0.1 (DNS rebinding); its requests still tell it here.
    """
    host = next((value for name, value in scope["headers"] if name == b"host"), b"localhost").decode("latin-1")
    return is_loopback(host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0])


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server bound to `host`."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
