"""Every route x scope x tenant, made from the application's own routes."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastapi import FastAPI, Response
from fastapi.routing import APIRoute
from fastapi.staticfiles import StaticFiles
from starlette.testclient import TestClient

from service.app import create_app
from service.reading import CONFIGURATION_EXAMPLE
from service.routes.devices import EXAMPLE as DEVICE
from service.security.access import ACCESS, SCOPES, grants
from service.security.gate import guarded
from service.settings import ServiceSettings
from tests.databases import ambient
from tests.unit.service.client import JOB, FakePool
from tests.unit.service.tenants import CALIBRATION, MARK, MEASUREMENT, World, fill, world

DOCUMENT = create_app(ServiceSettings()).openapi()
OPERATIONS = {
    operation["operationId"]: (method.upper(), path)
    for path, operations in DOCUMENT["paths"].items()
    for method, operation in operations.items()
}
STRANGERS = (None, "expired", "revoked", "forged", "unreadable")
OF_NOBODY = {"problem_page", "livez", "readyz", "healthz", "metrics"}
"""What is the same for all tenants."""
SMALL = {**JOB, "training": {**JOB["training"], "global_batch_size": 256}}
BODIES: dict[str, dict[str, Any]] = {
    "create_plan": SMALL,
    "create_frontier": {**SMALL, "axes": ["time", "memory"], "points": 2},
    "create_ladder": {**SMALL, "low": 1, "high": 2},
    "create_estimate": {**JOB, "configuration": CONFIGURATION_EXAMPLE},
    "add_measurement": MEASUREMENT,
    "add_calibration": {**CALIBRATION, "reason": "as before"},
    "activate_calibration": {"reason": "as before"},
    "create_job": {"name": "another", "plan_id": "{plan_id}"},
    "supersede_plan": {"plan_id": "{plan_id}"},
    "roll_back_plan": {},
    "register_model": {"name": "fresh", "config": None, "architecture": {}},
    "register_device": {**DEVICE, "name": "fresh"},
    "register_cluster": {"name": "fresh", "pools": JOB["cluster"]["pools"]},
}
pytestmark = pytest.mark.usefixtures("databases")


@pytest.fixture(scope="module")
def filled(databases: Any) -> Iterator[World]:
    with world() as found:
        fill(found)
        yield found


def ask(found: World, who: str | None, operation: str) -> Any:
    method, path = OPERATIONS[operation]
    named = {**found.made[""], **found.made.get(path.split("/")[2] if path.startswith("/v1/") else "", {})}
    body = BODIES.get(operation)
    if body is not None:
        plan = found.made[""]["plan_id"]
        body = {key: plan if value == "{plan_id}" else value for key, value in body.items()}
    address = re.sub(r"{(\w+)}", lambda hole: named.get(hole[1], "conflict"), path)
    return found.ask(who, method, address, json=body)


OPEN = {"/openapi.json", "/docs/files"}
"""What FastAPI and Starlette add beside operations: the document and the files of its page."""


def undeclared(app: FastAPI) -> set[str]:
    """What the application answers and the matrix does not know: hidden routes, mounts and plain functions too."""
    routes = list(app.routes)
    found = set()
    while routes:
        route = routes.pop()
        if isinstance(route, APIRoute):
            public = ACCESS.get(route.name) == "public"
            known = route.name in ACCESS and route.name in {*OPERATIONS, "docs_page"}
            if not known or public == guarded(route.path):
                found.add(route.name)
        elif hasattr(route, "original_router"):  # FastAPI keeps what was included as a whole
            routes += route.original_router.routes
        elif getattr(route, "path", None) not in OPEN:
            found.add(str(getattr(route, "path", route)))
    return found


def test_every_route_declares_whom_it_is_for() -> None:
    app = create_app(ServiceSettings())
    assert undeclared(app) == set()
    assert set(OPERATIONS) | {"docs_page"} == set(ACCESS)


def added_by_decorator(app: FastAPI) -> None:
    @app.get("/v1/plans/{plan_id}/secrets", include_in_schema=False)
    async def secrets(plan_id: str) -> str:
        return plan_id


def added_as_a_plain_function(app: FastAPI) -> None:
    app.add_route("/v1/backdoor", lambda _: Response("in"))


def added_as_a_mount(app: FastAPI) -> None:
    app.mount("/v1/files", StaticFiles(directory="."))


@pytest.mark.parametrize("add", [added_by_decorator, added_as_a_plain_function, added_as_a_mount])
def test_a_route_that_is_in_no_row_of_the_table_is_noticed_and_refused(add: Callable[[FastAPI], None]) -> None:
    settings = ServiceSettings(database_url=ambient.fresh(), authentication="required")
    app = create_app(settings, pool=FakePool(), estimates_pool=FakePool())
    add(app)
    assert undeclared(app)
    with TestClient(app, base_url="http://127.0.0.1") as http:
        for path in ("/v1/plans/x/secrets", "/v1/backdoor", "/v1/files/setup.cfg"):
            assert http.get(path).status_code == 401


@pytest.mark.parametrize("operation", sorted(OPERATIONS))
def test_who_may(filled: World, operation: str) -> None:
    access = ACCESS[operation]
    for stranger in STRANGERS:
        answer = ask(filled, stranger, operation)
        assert (answer.status_code == 401) == (access != "public"), (stranger, answer.text)
        if access != "public":
            assert answer.headers["www-authenticate"].startswith("Bearer")
            assert MARK not in answer.text
    for scope in SCOPES:
        if not grants(frozenset({scope}), access):
            answer = ask(filled, scope, operation)
            assert answer.status_code == 403, (scope, answer.text)
            assert answer.json()["type"] == "/problems/forbidden"


@pytest.mark.parametrize("operation", sorted(set(OPERATIONS) - OF_NOBODY))
def test_a_neighbour_finds_nothing(filled: World, operation: str) -> None:
    _, path = OPERATIONS[operation]
    answer = ask(filled, "neighbour", operation)
    if "{" in path or operation == "create_job":
        assert answer.status_code == 404, answer.text  # which may repeat the name that was asked for
        return
    assert answer.status_code in {200, 201, 202, 422}, answer.text
    if operation == "list_audit":
        assert {item["caller"] for item in answer.json()["items"]} <= {"neighbour", "operator"}
        return
    assert MARK not in answer.text
    assert not any(value in answer.text for value in filled.made[""].values() if len(value) == 36)


ORDER = sorted(set(OPERATIONS), key=lambda name: (OPERATIONS[name][0] == "DELETE", name))


def test_the_owner_finds_everything(filled: World) -> None:
    """The same requests, so that the neighbour's failures mean something. What takes away comes last."""
    for operation in ORDER:
        granting = [scope for scope in SCOPES if grants(frozenset({scope}), ACCESS[operation])]
        answer = ask(filled, granting[0], operation)
        allowed = {409} if operation.startswith("cancel_") else {422} if operation == "register_model" else set()
        assert answer.is_success or answer.status_code in allowed, (operation, answer.text)


def test_names_and_keys_of_others_mean_nothing(filled: World) -> None:
    body = {**JOB, "cluster": f"{MARK}-cluster"}
    assert filled.ask("neighbour", "POST", "/v1/plans", json=body).status_code == 422
    for who in ("plan", "neighbour"):
        headers = {"Idempotency-Key": "shared"}
        answer = filled.ask(who, "POST", "/v1/plans", json={**JOB, "objective": "memory"}, headers=headers)
        assert answer.status_code in {200, 202}, (who, answer.text)
