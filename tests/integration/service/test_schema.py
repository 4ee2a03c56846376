"""Whatever the OpenAPI document allows, and what it does not: every operation answers as the document says it does."""

import asyncio
import json
import os
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from service.app import create_app
from service.routes.devices import EXAMPLE as DEVICE
from service.settings import ServiceSettings
from service.solving.pool import OnProgress
from service.solving.worker import Answer, Task
from tests.databases import ambient
from tests.databases.fixtures import Fresh
from tests.scale import FULL, scaled
from tests.unit.service.client import JOB, FakePool, planned
from tests.unit.service.tenants import CALIBRATION, World, fill, made_before, world

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
# Its systematic coverage of every keyword takes minutes; the sample keeps the examples and the random part.
CONFIG = SchemathesisConfig.from_dict({"phases": {"coverage": {"enabled": FULL}}})
MISREAD = {"get_device"}
"""Schemathesis 4.32 rewrites `prefixItems` of their schemas while it generates, and then calls them invalid."""
UNDER_WAY = {**JOB, "objective": "memory"}
# Only for its document, which a test client asks for: requests go to an application of each kind of database.
APP = create_app(ServiceSettings(authentication="none", database_url=ambient.fresh()))
schema = schemathesis.openapi.from_asgi("/openapi.json", APP, config=CONFIG)
pytestmark = [pytest.mark.xdist_group("schema"), pytest.mark.timeout(scaled(300, 3600))]
PATIENCE = scaled(120, 1800)
"""Time that the last test gives the other processes of the run to end theirs: pytest-xdist 3.8 does not keep groups
together under pytest 9.2. [s]"""


class Solvers(FakePool):
    """Answer at once, but for one request, which they never end."""

    async def submit(self, task: Task, on_progress: OnProgress) -> Answer:
        while task.request is not None and task.request.objectives == ("memory",) and task.id not in self.cancelled:
            await asyncio.sleep(0.01)
        return await super().submit(task, on_progress)


def answered(task: Task) -> Answer:
    """As a solver would."""
    if task.verb not in {"frontier", "ladder"}:
        return planned(task)
    found = made_before(task.verb)
    found["envelope"]["id"] = task.id
    return Answer(plan_json=json.dumps(found))


@dataclass(kw_only=True)
class Made(World):
    """One of everything, and a folder of the whole run for what was answered."""

    statuses: Path

    def note(self, operation: str, status: int) -> None:
        """For the last test, in whichever process it runs."""
        (self.statuses / f"{operation} {status}").touch()

    def noted(self) -> set[tuple[str, int]]:
        """Operations with the statuses that they have answered."""
        pairs = (file.name.split() for file in self.statuses.iterdir())
        return {(operation, int(status)) for operation, status in pairs}


@pytest.fixture(scope="module")
def made(databases: Fresh, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    """The application over each kind of database in turn."""
    own = tmp_path_factory.getbasetemp()
    run = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    with world(Solvers(answered), requests_per_minute=10**8) as found:
        fill(found)
        statuses = run / f"statuses-{found.database.engine.dialect.name}"
        statuses.mkdir(exist_ok=True)
        yield Made(**vars(found), statuses=statuses)


def known(made: Made, case: Any) -> dict[str, str]:
    """What stands in the path for something that is there."""
    own = {**made.made[""], "slug": "not-found", **made.made.get(case.path.split("/")[2], {})}
    return {name: own.get(name, value) for name, value in case.path_parameters.items()}


def sent(made: Made, case: Any) -> Any:
    """Not `case.call`, which would start the application of the document."""
    asked = case.as_transport_kwargs(base_url="http://127.0.0.1")
    del asked["cookies"]  # nothing here has any
    headers = {**asked.pop("headers"), "Authorization": f"Bearer {made.tokens['admin']}"}
    if (data := asked.pop("data", None)) is not None:
        asked["content"] = data
    return made.http.request(**asked, headers=headers)


def checked(made: Made, case: Any) -> int:
    """The status of an answer that is what the document says."""
    answer, operation = sent(made, case), case.operation.definition.raw["operationId"]
    made.note(operation, answer.status_code)
    checks = [check for check in CHECKS if check is not response_schema_conformance or operation not in MISREAD]
    case.validate_response(answer, checks=checks)
    return int(answer.status_code)


@schema.parametrize()
@settings(max_examples=scaled(15, 200), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_every_request_is_answered_as_the_document_says(case: Any, made: Made) -> None:
    """By the project's admin; every other request is about something that is there."""
    if case.path_parameters and zlib.crc32(repr((case.path_parameters, case.query, case.headers)).encode()) % 2:
        case.path_parameters = known(made, case)
    checked(made, case)


@pytest.mark.parametrize(
    ("kind", "parameter"), [("plans", "plan_id"), ("frontiers", "answer_id"), ("ladders", "answer_id")]
)
def test_what_is_being_made_can_be_cancelled(kind: str, parameter: str, made: Made) -> None:
    place = made.ask("admin", "POST", f"/v1/{kind}", json=UNDER_WAY).headers["location"]
    cancel = schema[f"/v1/{kind}/{{{parameter}}}"]["DELETE"]
    assert checked(made, cancel.Case(path_parameters={parameter: place.rpartition("/")[2]})) == 200


def test_what_is_about_something_that_is_there_is_kept(made: Made) -> None:
    names = made.made[""]
    bodies: dict[str, Any] = {
        "/v1/jobs": {"name": "another-job", "plan_id": names["plan_id"]},
        "/v1/jobs/{name}/versions": {"plan_id": names["other_id"]},
        "/v1/calibrations": CALIBRATION,
        "/v1/devices": {**DEVICE, "name": "another-device"},
        "/v1/plans/{plan_id}/measurements": {"outcome": "ok", "step_seconds": 1.0},
    }
    known = {**names, **made.made["jobs"]}
    for path, body in bodies.items():
        parameters = {name: value for name, value in known.items() if f"{{{name}}}" in path}
        case = schema[path]["POST"].Case(path_parameters=parameters, body=body, media_type="application/json")
        assert checked(made, case) == 201


def test_every_operation_has_answered_with_success(made: Made) -> None:
    operations = {one["operationId"] for path in APP.openapi()["paths"].values() for one in path.values()}
    end = time.monotonic() + PATIENCE
    while left := operations - {name for name, status in made.noted() if status < 300}:
        assert time.monotonic() < end, f"never answered with success: {sorted(left)}"
        time.sleep(1)
    assert {name for name, _ in made.noted()} == operations
