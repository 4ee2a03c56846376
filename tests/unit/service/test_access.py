"""Every route x scope x tenant, made from the application's own routes."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from service.app import create_app
from service.security.access import ACCESS, SCOPES, grants
from service.security.gate import guarded
from service.settings import ServiceSettings
from tests.unit.service.client import JOB
from tests.unit.service.tenants import CALIBRATION, CONFIGURATION, MARK, MEASUREMENT, World, fill, world

DOCUMENT = create_app(ServiceSettings()).openapi()
OPERATIONS = {
    operation["operationId"]: (method.upper(), path)
    for path, operations in DOCUMENT["paths"].items()
    for method, operation in operations.items()
}
STRANGERS = (None, "expired", "revoked", "forged", "unreadable")
OF_NOBODY = {"get_device", "list_devices", "problem_page", "livez", "readyz", "healthz", "metrics"}
"""What is the same for all tenants."""
SMALL = {**JOB, "training": {**JOB["training"], "global_batch_size": 256}}
BODIES: dict[str, dict[str, Any]] = {
    "create_plan": SMALL,
    "create_frontier": {**SMALL, "axes": ["time", "memory"], "points": 2},
    "create_ladder": {**SMALL, "low": 1, "high": 2},
    "create_estimate": {**JOB, "configuration": CONFIGURATION},
    "add_measurement": MEASUREMENT,
    "add_calibration": {**CALIBRATION, "reason": "as before"},
    "create_job": {"name": "another", "plan_id": "{plan_id}"},
    "supersede_plan": {"plan_id": "{plan_id}"},
    "roll_back_plan": {},
    "register_model": {"name": "fresh", "config": None, "architecture": {}},
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


def test_every_route_declares_whom_it_is_for() -> None:
    assert set(OPERATIONS) | {"docs_page"} == set(ACCESS)
    for operation, (_, path) in OPERATIONS.items():
        assert guarded(path) == (ACCESS[operation] != "public"), operation


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
