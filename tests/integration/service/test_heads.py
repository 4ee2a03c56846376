"""Connections that send too much or too little before anybody is known: they are hung up on, others go on."""

import contextlib
import json
import re
import select
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx2
import pytest

from service import heads
from tests.integration.service.live import Server, served

PATIENCE = "2"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with served(environment={"MESHWRIGHT_CLIENT_SECONDS": PATIENCE}) as found:
        yield found


def connected(server: Server) -> socket.socket:
    host, _, port = server.url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=20)


HEAD = b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9000\r\n\r\n"


def problem(connection: socket.socket) -> dict[str, Any]:
    """What was answered, to its last byte; the other end may hang up then or not."""
    with connection.makefile("rb") as answer:
        head = b"".join(iter(answer.readline, b"\r\n"))
        length = re.search(rb"content-length: ([0-9]+)", head)
        assert length is not None, head
        body = answer.read(int(length.group(1)))
    assert b"content-type: application/problem+json" in head, body
    found: dict[str, Any] = json.loads(body)
    assert head.startswith(f"HTTP/1.1 {found['status']}".encode())
    assert found["detail"]
    return found


def test_headers_without_end_are_refused(server: Server) -> None:
    with connected(server) as found:
        found.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: ")
        sent = 0
        try:
            while sent < 64 * heads.LONGEST_HEAD:
                sent += found.send(b"a" * 65536)
        except OSError:
            pass
        assert sent < 64 * heads.LONGEST_HEAD, "it was hung up on"


@pytest.mark.parametrize(("size", "status"), [(heads.LONGEST_HEAD, 200), (heads.LONGEST_HEAD + 1, 431)])
@pytest.mark.parametrize("pieces", [1, 7])
def test_a_head_is_as_long_as_is_said(server: Server, size: int, status: int, pieces: int) -> None:
    start = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: "
    whole = start + b"a" * (size - len(start) - 4) + b"\r\n\r\n"
    assert len(whole) == size
    with connected(server) as found:
        for one in range(pieces):
            with contextlib.suppress(OSError):  # it may have hung up already
                found.sendall(whole[one * size // pieces : (one + 1) * size // pieces])
            time.sleep(0.02)
        assert found.recv(12) == b"HTTP/1.1 %d" % status


def test_a_long_body_is_no_long_head(server: Server) -> None:
    body = b" " * (2**20 - 100) + b"{}"
    for _ in range(2):
        found = httpx2.post(f"{server.url}/v1/jobs", content=body, headers={"Content-Type": "application/json"})
        assert found.status_code == 422, found.text


def test_whoever_says_nothing_or_half_is_hung_up_on(server: Server) -> None:
    head = b"POST /v1/plans HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n"
    said = (b"", b"GET /livez HTTP/1.1\r\nHost: loc", head + b"{")
    with ExitStack() as stack:
        slow = [stack.enter_context(connected(server)) for _ in said]
        for one, text in zip(slow, said, strict=True):
            one.sendall(text)
        assert httpx2.get(f"{server.url}/livez").status_code == 200
        for one in slow:
            assert problem(one)["status"] == 408


def test_a_body_that_drips_is_bounded_in_time(server: Server) -> None:
    """A byte often enough to be no silence; with 408, or where it was answered before, the connection ends."""
    started = time.monotonic()
    with connected(server) as body, connected(server) as refused:
        body.sendall(HEAD % b"/v1/plans")
        refused.sendall(HEAD % b"/v1/nothing")
        assert problem(refused)["status"] == 404
        dripping = [body, refused]
        while dripping:
            assert time.monotonic() - started < 30, "they drip on"
            time.sleep(0.1)
            over, _, _ = select.select(dripping, [], [], 0)
            dripping = [one for one in dripping if one not in over]
            for one in dripping:
                with contextlib.suppress(OSError):
                    one.sendall(b" ")
        assert problem(body)["status"] == 408
        with contextlib.suppress(ConnectionResetError):
            assert refused.recv(4096) == b"", "hung up on"


@pytest.mark.parametrize(
    "said",
    [
        b"nonsense\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\nbroken header\r\n\r\n",
        b"GET /livez\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /\xc3\xa9 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /v1/plans HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /v1/plans HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"GET /livez HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
def test_what_is_no_http_is_a_problem_too(server: Server, said: bytes) -> None:
    with connected(server) as found:
        found.sendall(said)
        assert problem(found)["status"] == 400


def test_connections_are_kept_between_requests(server: Server) -> None:
    with httpx2.Client(base_url=server.url) as http:
        assert [http.get("/livez").status_code for _ in range(50)] == [200] * 50
