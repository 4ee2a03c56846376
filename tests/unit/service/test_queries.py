"""Queries: nothing that an operation does not take, nothing twice, no token that another list gave."""

from typing import Any

import pytest
from fastapi.routing import APIRoute
from starlette.testclient import TestClient

from tests.unit.service.client import JOB, client
from tests.unit.service.test_access import DOCUMENT, OPERATIONS

pytestmark = pytest.mark.usefixtures("databases")
LISTS = [
    path
    for path, operations in DOCUMENT["paths"].items()
    for found in operations.get("get", {}).get("parameters", ())
    if found["name"] == "page_token"
]


@pytest.fixture(scope="module")
def http() -> Any:
    with client() as found:
        yield found


def filled(path: str) -> str:
    return path.replace("{plan_id}", "x").replace("{", "").replace("}", "")


@pytest.mark.parametrize("operation", sorted(OPERATIONS))
def test_an_unknown_parameter_is_refused_by_every_operation(http: TestClient, operation: str) -> None:
    method, path = OPERATIONS[operation]
    json: dict[str, Any] | None = {} if method in {"POST", "PUT"} else None
    answer = http.request(method, f"{filled(path)}?pagesize=2", json=json)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["pointer"] == "#query/pagesize"
    assert "unknown parameter; " in answer.json()["detail"]


def test_the_page_of_the_interface_takes_none(http: TestClient) -> None:
    assert http.get("/docs").status_code == 200
    assert http.get("/docs?x=1").status_code == 422


def test_the_known_parameters_are_told_nearest_first(http: TestClient) -> None:
    found = http.get("/v1/plans?pagesize=2&stat=done&pagesize=3").json()
    assert [error["pointer"] for error in found["errors"]] == ["#query/pagesize", "#query/stat"]
    first, second = (error["detail"] for error in found["errors"])
    assert first.startswith("unknown parameter; those here are page_size, page_token, ")
    assert second.startswith("unknown parameter; those here are state, status, ")
    assert "there are none here" in http.get("/livez?deep=1").json()["detail"]


def test_a_parameter_stands_once(http: TestClient) -> None:
    found = http.get("/v1/plans?page_size=2&page_size=3").json()
    assert found["errors"] == [
        {"pointer": "#query/page_size", "detail": "page_size is given 2 times; a parameter may stand once"}
    ]


def test_a_long_name_is_cut(http: TestClient) -> None:
    assert len(http.get(f"/v1/plans?{'x' * 10_000}=1").text) < 1000


@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize("token", ["eyJ9", "nonsense", "", "%00", "bnVsbA==", "MTIz", "é", "A" * 500])
def test_no_list_takes_a_token_that_it_did_not_give(http: TestClient, path: str, token: str) -> None:
    answer = http.get(filled(path), params={"page_token": token})
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["pointer"] == "#query/page_token"


def test_a_token_is_good_for_its_own_list(http: TestClient) -> None:
    for number in range(2):
        body = {**JOB, "objective_tolerance": 0.01 * number}
        assert http.post("/v1/plans", json=body, headers={"Prefer": "wait=10"}).status_code == 200
    token = http.get("/v1/plans?page_size=1").json()["next_page_token"]
    assert len(http.get("/v1/plans", params={"page_token": token}).json()["items"]) == 1
    for path in ("/v1/jobs", "/v1/frontiers", "/v1/devices"):
        refused = http.get(path, params={"page_token": token})
        assert refused.status_code == 422
        assert f"none that {path} gave" in refused.json()["detail"]
    assert http.get("/v1/plans", params={"page_token": token + "!"}).status_code == 422


def test_every_route_checks(http: TestClient) -> None:
    from service.reading import StrictRoute

    routes = [route for route in http.app.routes if isinstance(route, APIRoute)]  # type: ignore[attr-defined]
    assert all(isinstance(route, StrictRoute) for route in routes)
