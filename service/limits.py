"""Limits that hold before a body is read."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.problems import BodyTooLarge, problem_of_refusal, response


class BodyLimit:
    """Refuses bodies beyond a size: by their declared length at once, else when they have grown too long."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        """Wrap `app`. [bytes]"""
        self.app = app
        self.max_bytes = max_bytes

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
        received = 0

        async def counting() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self.max_bytes:
                raise BodyTooLarge(self.max_bytes)
            return message

        await self.app(scope, counting, send)
