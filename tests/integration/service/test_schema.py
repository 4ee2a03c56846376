"""Whatever the OpenAPI document allows, and what it does not: no answer is a server error."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.config import SchemathesisConfig
from starlette.testclient import TestClient

from service.app import create_app
from service.settings import ServiceSettings
from tests.databases import ambient
from tests.databases.fixtures import Fresh
from tests.scale import FULL, scaled
from tests.unit.service.client import FakePool, InlinePool

# The generated requests name the host of a test client.
APP = create_app(
    ServiceSettings(authentication="none", database_url=ambient.fresh()), pool=FakePool(), estimates_pool=InlinePool()
)
# Its systematic coverage of every keyword takes minutes; the sample keeps the examples and the random part.
CONFIG = SchemathesisConfig.from_dict({"phases": {"coverage": {"enabled": FULL}}})
schema = schemathesis.openapi.from_asgi("/openapi.json", APP, config=CONFIG)


@pytest.fixture(scope="module")
def http(databases: Fresh) -> Iterator[TestClient]:
    """The application over each kind of database in turn."""
    APP.state.settings = APP.state.settings.model_copy(update={"database_url": databases()})
    with TestClient(APP, raise_server_exceptions=False) as found:
        yield found


@schema.parametrize()
@settings(max_examples=scaled(15, 150), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_no_generated_request_breaks_the_service(case: Any, http: TestClient) -> None:
    answer = case.call(session=http)
    case.validate_response(answer, checks=[not_a_server_error])
