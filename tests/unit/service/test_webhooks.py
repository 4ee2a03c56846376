"""Messages: signed, delivered once, tried again, and never to the service's own network."""

import asyncio
import base64
import http.server
import ipaddress
import json
import threading
from collections.abc import Iterator
from typing import Any

import httpcore2
import pytest
from standardwebhooks import Webhook
from structlog.testing import capture_logs

from cost_models.errors import SpecError
from service.settings import ServiceSettings
from service.webhooks import sender
from service.webhooks.addresses import Allowed, PublicBackend, Refused
from tests.unit.service.client import JOB, FakePool, client

SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
LOCAL: dict[str, Any] = {"webhook_secret": SECRET, "webhook_networks": ["127.0.0.0/8"]}


class Receiver:
    """Takes messages, and answers with the statuses that a test wants, the last one again and again."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.messages: list[tuple[dict[str, str], str]] = []
        self.came = threading.Semaphore(0)
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"])).decode()
                owner.messages.append(({name.lower(): value for name, value in self.headers.items()}, body))
                status = owner.statuses.pop(0) if len(owner.statuses) > 1 else owner.statuses[0]
                self.send_response(status)
                self.send_header("Location", f"{owner.url}/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()
                owner.came.release()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def receiver(request: pytest.FixtureRequest) -> Iterator[Receiver]:
    found = Receiver(*getattr(request, "param", (204,)))
    yield found
    found.server.shutdown()
    found.server.server_close()


@pytest.mark.usefixtures("databases")
def test_the_end_of_a_plan_is_told_once_and_signed(receiver: Receiver) -> None:
    with client(**LOCAL) as http:
        answer = http.post("/v1/plans", json={**JOB, "webhook": {"url": receiver.url}})
        assert answer.status_code == 202, answer.text
        assert receiver.came.acquire(timeout=20)
        [(headers, body)] = receiver.messages
        told = Webhook(SECRET).verify(body, headers)
        plan = answer.headers["location"].rpartition("/")[2]
        assert told["type"] == "plan.done"
        assert told["data"] == {"id": plan, "state": "done", "status": "optimal", "location": f"/v1/plans/{plan}"}
        again = http.post("/v1/plans", json={**JOB, "webhook": {"url": receiver.url}})
        assert again.status_code == 200, "the plan is stored: it is the answer, and was told at this address"
        other = http.post("/v1/plans", json={**JOB, "webhook": {"url": f"{receiver.url}?other"}})
        assert other.status_code == 200
        assert receiver.came.acquire(timeout=20)
        assert not receiver.came.acquire(timeout=0.5), "one message for each address"


@pytest.mark.usefixtures("databases")
def test_equal_requests_with_one_address_are_one_message(receiver: Receiver) -> None:
    pool = FakePool(held=True)
    with client(pool, **LOCAL) as http:
        asked = [{**JOB, "webhook": {"url": receiver.url + end}} for end in ("", "", "?other", "")]
        assert len({http.post("/v1/plans", json=body).headers["location"] for body in asked}) == 1
        assert http.portal is not None
        assert pool.release is not None
        http.portal.call(pool.release.set)
        for _ in range(2):
            assert receiver.came.acquire(timeout=20)
        assert not receiver.came.acquire(timeout=0.5)
    assert len({headers["webhook-id"] for headers, _ in receiver.messages}) == 2


@pytest.mark.parametrize("receiver", [(500, 302, 204)], indirect=True)
@pytest.mark.usefixtures("databases")
def test_a_message_that_is_not_taken_is_tried_again_and_redirects_are_not_followed(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.webhooks.sender.PAUSES", (0.1,) * 9)
    with capture_logs() as said, client(**LOCAL) as http:
        headers = {"X-Request-Id": "told-1"}
        place = http.post("/v1/plans", json={**JOB, "webhook": {"url": receiver.url}}, headers=headers).headers[
            "location"
        ]
        for _ in range(3):
            assert receiver.came.acquire(timeout=20)
        assert not receiver.came.acquire(timeout=0.5)
    ids = {headers["webhook-id"] for headers, _ in receiver.messages}
    assert len(ids) == 1, "the receiver tells repetitions by the id"
    assert {json.loads(body)["type"] for _, body in receiver.messages} == {"plan.done"}
    of_message = [one for one in said if one.get("host") == "127.0.0.1"]
    assert [one["event"] for one in of_message] == ["a message was not taken"] * 2 + ["a message was taken"]
    assert {(one["request_id"], one["plan_id"]) for one in of_message} == {("told-1", place.rpartition("/")[2])}


@pytest.mark.usefixtures("databases")
def test_a_cancelled_plan_is_told_too(receiver: Receiver) -> None:
    pool = FakePool(held=True)
    pool.capacity = 0
    with client(pool, **LOCAL) as http:
        place = http.post("/v1/plans", json={**JOB, "webhook": {"url": receiver.url}}).headers["location"]
        http.delete(place)
        assert receiver.came.acquire(timeout=20)
    assert json.loads(receiver.messages[0][1])["type"] == "plan.cancelled"


@pytest.mark.parametrize(
    ("url", "detail"),
    [
        ("http://127.0.0.1/x", "is a private address"),
        ("http://[::1]/x", "is a private address"),
        ("http://169.254.169.254/latest/meta-data", "is a private address"),
        ("https://10.1.2.3/x", "is a private address"),
        ("https://user:pass@example.com/x", "holds a user name"),
        ("https:///x", "names no host"),
        ("ftp://example.com/x", "webhook.url"),
        ("http://example.com/\r\nX-Injected: 1", "webhook.url"),
        ("http://example.com/x y", "webhook.url"),
        ("http://[::ffff:7f00:1]/x", "is a private address"),
        ("http://127.0.0.1%00.example.com/x", "is a private address"),
    ],
)
def test_urls_that_no_message_goes_to(url: str, detail: str) -> None:
    with client(webhook_secret=SECRET) as http:
        answer = http.post("/v1/plans", json={**JOB, "webhook": {"url": url}})
        assert answer.status_code == 422
        assert detail in answer.json()["detail"]


def test_without_a_secret_no_messages_are_promised() -> None:
    with client() as http:
        answer = http.post("/v1/plans", json={**JOB, "webhook": {"url": "https://example.com/x"}})
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["pointer"] == "/webhook"


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        *[(text, True) for text in ("93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946")],
        *[
            (text, False)
            for text in ("127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0")
        ],
        *[(text, False) for text in ("100.64.0.1", "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fd00::1")],
        # An IPv4 address behind a translator is judged as itself.
        *[(text, False) for text in ("::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "ff02::1")],
        *[(text, False) for text in ("64:ff9b:1::7f00:1", "::127.0.0.1", "3fff::1", "5f00::1", "fec0::1")],
    ],
)
def test_public_addresses_only(text: str, allowed: bool) -> None:
    assert Allowed()(ipaddress.ip_address(text)) is allowed


@pytest.mark.parametrize("name", ["localhost", "127.1", "0x7f.1", "2130706433", "017700000001"])
def test_other_ways_to_write_this_machine_are_refused_where_they_are_looked_up(name: str) -> None:
    with pytest.raises((Refused, httpcore2.ConnectError)):
        asyncio.run(PublicBackend(Allowed()).connect_tcp(name, 80))


def test_named_networks_are_allowed_beside() -> None:
    allowed = Allowed((ipaddress.ip_network("10.0.0.0/8"),))
    assert allowed(ipaddress.ip_address("10.9.9.9"))
    assert not allowed(ipaddress.ip_address("192.168.0.1"))


def test_a_name_that_means_another_address_by_then_gains_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The address that is checked is the address that is connected to."""
    answers = iter(["93.184.216.34", "127.0.0.1"])
    connected = []

    async def looked_up(*_: Any, **__: Any) -> Any:
        return [(0, 0, 0, "", (next(answers), 443))]

    class Inner:
        async def connect_tcp(self, host: str, *_: Any) -> Any:
            connected.append(host)

    monkeypatch.setattr("anyio.getaddrinfo", looked_up)
    backend = PublicBackend(Allowed())
    monkeypatch.setattr(backend, "_inner", Inner())
    asyncio.run(backend.connect_tcp("rebinding.example", 443))
    assert connected == ["93.184.216.34"]
    with pytest.raises(Refused, match="private address"):
        asyncio.run(backend.connect_tcp("rebinding.example", 443))
    assert connected == ["93.184.216.34"]


@pytest.mark.parametrize("secret", ["short", "whsec_!!!", "whsec_" + base64.b64encode(b"short").decode()])
def test_a_weak_secret_is_refused_without_being_told(secret: str) -> None:
    with pytest.raises(SpecError) as refused:
        ServiceSettings.stated(webhook_secret=secret)
    assert "24 to 64 bytes" in str(refused.value)
    assert secret not in str(refused.value).replace("whsec_ and", "")


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://[2001:db8::1]:8080/x", b"[2001:db8::1]:8080"),
        ("https://[2001:db8::1]/x", b"[2001:db8::1]"),
        ("https://example.com:443/x", b"example.com"),
        ("http://example.com:8080/x", b"example.com:8080"),
    ],
)
def test_the_host_is_named_as_in_the_address(url: str, host: bytes) -> None:
    assert sender._with_host(url, []) == [(b"host", host)]
