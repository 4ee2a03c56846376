"""Talking to the service: what is final, what is worth another try, and plans by id."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from cost_models.errors import SpecError
from executor.client import check_address, post
from executor.errors import ServiceAway, ServiceRefused
from executor.run import find_plan
from tests.unit.executor.plans import feasible


class _Handler(BaseHTTPRequestHandler):
    posts = 0

    def do_GET(self) -> None:
        status = {"/v1/plans/plan-1": 200, "/v1/plans/pending": 202}.get(self.path, 404)
        self._answer(status, feasible().to_json().encode() if status == 200 else b'{"detail": "no plan of this id"}')

    def do_POST(self) -> None:
        assert self.headers["Idempotency-Key"] == "k"
        assert self.headers["Authorization"] == "Bearer secret"
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(int(self.path.removeprefix("/")), b'{"detail": "because"}')
        _Handler.posts += 1

    def _answer(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        if 300 <= status < 400:
            self.send_header("Location", "/v1/plans/plan-1")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("MESHWRIGHT_API_KEY", "secret")
    server = HTTPServer(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("status", "kind"), [(400, ServiceRefused), (404, ServiceRefused), (429, ServiceAway), (503, ServiceAway)]
)
def test_an_answer_is_final_or_worth_another_try(service: str, status: int, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=f"answered {status}: because") as said:
        post(service, f"/{status}", {}, idempotency_key="k")
    assert "secret" not in str(said.value)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_post_that_is_sent_elsewhere_has_not_been_taken(service: str, status: int) -> None:
    with pytest.raises(ServiceAway, match=f"answered {status}: it moved to /v1/plans/plan-1; give the address"):
        post(service, f"/{status}", {}, idempotency_key="k")


def test_what_is_no_path_is_asked_nowhere(service: str) -> None:
    before = _Handler.posts
    for path in ("@127.0.0.1/x", "/a b", "http://127.0.0.1/x"):
        with pytest.raises(ServiceRefused, match="is no "):
            post(service, path, {}, idempotency_key="k")
    assert _Handler.posts == before


def test_what_is_taken_is_answered(service: str) -> None:
    assert post(service, "/201", {}, idempotency_key="k") == b'{"detail": "because"}'


def test_no_service_is_worth_another_try() -> None:
    with pytest.raises(ServiceAway, match="does not answer"):
        post("http://127.0.0.1:9", "/x", {}, idempotency_key="k")


@pytest.mark.parametrize(
    "address",
    ["file:///etc/passwd", "ftp://x", "localhost:8000", "http://", "http://a b", "http://[::1", "http://x:y", ""],
)
def test_what_is_no_address_is_said_before_anything_is_sent(address: str) -> None:
    with pytest.raises(SpecError, match="is no "):
        check_address(address)
    with pytest.raises(SpecError, match="is no "):
        post(address, "/x", {}, idempotency_key="k")
    check_address("https://user@host:8443/prefix/")


def test_a_plan_is_a_file_or_an_id_at_the_service(service: str, tmp_path: Path) -> None:
    assert find_plan(Path("plan-1"), service).envelope.id == "plan-1"
    with pytest.raises(ServiceAway, match="still making"):
        find_plan(Path("pending"), service)
    with pytest.raises(ServiceRefused, match="404: no plan of this id"):
        find_plan(Path("other"), service)
    with pytest.raises(SpecError, match="no such file"):
        find_plan(tmp_path / "absent.json", service)
    with pytest.raises(SpecError, match="plan-1: no such file; the id of a plan needs --service"):
        find_plan(Path("plan-1"), None)
