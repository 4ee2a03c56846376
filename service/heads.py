"""Heads of requests within bounds: httptools reads headers of any length, for as long as somebody sends them."""

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.problems import LONG_HEAD, NO_HTTP, SLOW_HEAD

LONGEST_HEAD: Final = 2**16
"""Of a request line and its headers, with the blank line behind them. [bytes]"""
END: Final = b"\r\n\r\n"


class BoundedHeads(HttpToolsProtocol):
    """Answers 431 or 408 and hangs up where a head is too long or too slow. Nobody has shown a key by then."""

    seconds = 20.0
    """From a connection, or the first byte after a request, to the end of a head."""
    _head = 0
    _tail = b""
    _reading_head = True
    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Somebody has connected, and should say what it wants."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """It has gone."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, unless the head is too long already."""
        if self._reading_head:
            seen = self._tail + data
            end = seen.find(END)  # what comes behind it in one piece with it is body
            self._head += len(data) if end < 0 else max(0, end + len(END) - len(self._tail))
            self._tail = seen[1 - len(END) :]
            if self._head > LONGEST_HEAD:
                self._refuse(LONG_HEAD)
                return
            if self._patience is None:
                self._wait()
        super().data_received(data)

    def send_400_response(self, msg: str) -> None:
        """What came is no request; uvicorn would say so in plain text."""
        self._refuse(NO_HTTP)

    def on_headers_complete(self) -> None:
        """The head is read."""
        self._reading_head = False
        self._stop_waiting()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The request is read; the next one begins with a head."""
        self._reading_head, self._head, self._tail = True, 0, b""
        self._stop_waiting()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """A request is answered, perhaps before its body has come: what is left of that is waited for no longer."""
        super().on_response_complete()
        if not self._reading_head and self._patience is None:
            self._patience = self.loop.call_later(self.seconds, self.transport.close)

    def _wait(self) -> None:
        self._patience = self.loop.call_later(self.seconds, self._refuse, SLOW_HEAD)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    @classmethod
    def within(cls, seconds: float) -> type["BoundedHeads"]:
        """With another patience."""
        return type(cls.__name__, (cls,), {"seconds": seconds})

    def _refuse(self, answer: bytes) -> None:
        self._stop_waiting()
        transport: Any = self.transport
        if transport.is_closing():
            return
        transport.write(answer)
        transport.close()
