"""Connections that send too much or too little before anybody is known: they are hung up on, others go on."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack

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
            assert one.recv(4096).startswith(b"HTTP/1.1 408")


def test_connections_are_kept_between_requests(server: Server) -> None:
    with httpx2.Client(base_url=server.url) as http:
        assert [http.get("/livez").status_code for _ in range(50)] == [200] * 50
