"""Bad bodies: always a 4xx with one line and, where there is a place, a pointer."""

from typing import Any

import pytest
from starlette.testclient import TestClient

from service.problems import MEDIA_TYPE
from tests.unit.service.client import JOB, client

pytestmark = pytest.mark.usefixtures("databases")

JSON = {"Content-Type": "application/json"}


def merged(**changes: Any) -> dict[str, Any]:
    return {**JOB, **changes}


def refusal(answer: Any, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == MEDIA_TYPE
    body: dict[str, Any] = answer.json()
    assert body["status"] == status
    assert body["instance"] == answer.headers["x-request-id"]
    assert "\n" not in body["detail"]
    return body


@pytest.fixture(scope="module")
def http() -> Any:
    with client(max_body_bytes=100_000) as found:
        yield found


@pytest.mark.parametrize("path", ["/v1/plans", "/v1/estimates"])
@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b'{"a": NaN}', "NaN"),
        (b'{"a": -Infinity}', "-Infinity"),
        (b'{"a": 1e999}', "larger than a double"),
        (b'{"a": 12345678901234567890}', "9007199254740991"),
        (b'{"a": ' + b"9" * 5000 + b"}", "an integer has 5000 digits, the limit is 400"),
        (b'{"a": [-' + b"9" * 400 + b"]}", "an integer has 401 digits, the limit is 400"),
        (b'{"a": 1, "a": 2}', "a is given twice"),
        (b"\xff\xfe{}", "not UTF-8"),
        (b"[1]", "is a list"),
        (b"null", "is empty"),
        (b'{"a": ', "not JSON"),
        (b'{"a": ' + b"[" * 20_000 + b"]" * 20_000 + b"}", "nests deeper"),
    ],
)
def test_bodies_that_are_no_plain_json(http: TestClient, path: str, body: bytes, detail: str) -> None:
    found = refusal(http.post(path, content=body, headers=JSON), 422)
    assert found["type"] == "/problems/unreadable-body"
    assert detail in found["detail"]


@pytest.mark.parametrize(
    ("body", "pointer", "detail"),
    [
        ({}, "/model", "required"),
        (merged(nodes=1), "/nodes", "unknown key; "),
        (merged(cluster={"pools": []}), "/cluster/pools", "at least 1"),
        (merged(cluster={"pools": [{"device": "cpu", "nodes": 0}]}), "/cluster/pools/0/nodes", "greater than 0"),
        (merged(training={**JOB["training"], "sequence_length": -1}), "/training/sequence_length", "greater than 0"),
        (merged(model={"preset": "gpt2", "hub": "a/b"}), "/model", "preset and hub given"),
    ],
)
def test_each_broken_key_is_pointed_at(http: TestClient, body: dict[str, Any], pointer: str, detail: str) -> None:
    found = refusal(http.post("/v1/plans", json=body), 422)
    assert found["errors"][0]["pointer"] == pointer
    assert detail in found["errors"][0]["detail"]
    assert detail in found["detail"]


@pytest.mark.parametrize("path", ["/v1/plans", "/v1/estimates"])
@pytest.mark.parametrize(
    ("model", "pointer"), [({"config": "../../etc/passwd"}, "/model/config"), ({"hub": "org/name"}, "/model/hub")]
)
def test_files_and_downloads_are_not_for_the_wire(http: TestClient, path: str, model: Any, pointer: str) -> None:
    found = refusal(http.post(path, json=merged(model=model)), 422)
    assert found["type"] == "/problems/not-inline"
    assert found["errors"][0]["pointer"] == pointer


def test_a_large_body_is_refused_by_its_declared_length(http: TestClient) -> None:
    found = refusal(http.post("/v1/plans", content=b" " * 10_000_000, headers=JSON), 413)
    assert found["detail"] == "the body is longer than 100000 bytes"


def test_a_large_body_is_refused_when_it_declares_no_length(http: TestClient) -> None:
    pieces = (b" " * 10_000 for _ in range(1000))
    refusal(http.post("/v1/plans", content=pieces, headers=JSON), 413)


@pytest.mark.parametrize("stated", [None, "text/plain", "application/x-www-form-urlencoded", "application/jsonp"])
def test_a_body_must_be_declared_as_json(http: TestClient, stated: str | None) -> None:
    headers = {} if stated is None else {"Content-Type": stated}
    refusal(http.post("/v1/plans", content=b"{}", headers=headers), 415)


def test_a_charset_beside_the_media_type_is_fine(http: TestClient) -> None:
    answer = http.post("/v1/plans", content=b"{}", headers={"Content-Type": "application/json; charset=utf-8"})
    refusal(answer, 422)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/v1/plans/none", 404),
        ("GET", "/v1/plans/none/exports/deepspeed", 404),
        ("GET", "/problems/none", 404),
        ("PUT", "/v1/estimates", 405),
        ("DELETE", "/livez", 405),
    ],
)
def test_what_is_not_there(http: TestClient, method: str, path: str, status: int) -> None:
    answer = http.request(method, path)
    refusal(answer, status)
    assert status != 405 or answer.headers["allow"]


def test_an_estimate_without_a_configuration(http: TestClient) -> None:
    assert "configuration is missing" in refusal(http.post("/v1/estimates", json=JOB), 422)["detail"]
