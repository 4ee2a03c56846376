"""Every body and every answer of the OpenAPI document has an example, which its own schema accepts."""

from collections.abc import Iterator
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from service.app import create_app
from service.settings import ServiceSettings

DOCUMENT = create_app(ServiceSettings()).openapi()
OPERATIONS = {
    operation["operationId"]: operation
    for operations in DOCUMENT["paths"].values()
    for operation in operations.values()
}


def contents(operation: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Where, media type, and what is said of it."""
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        yield "body", kind, content
    for status, response in operation["responses"].items():
        for kind, content in response.get("content", {}).items():
            yield status, kind, content


def examples(content: dict[str, Any]) -> list[Any]:
    found = [content["example"]] if "example" in content else []
    for one in content.get("examples", {}).values():
        name = one.get("$ref", "").rpartition("/")[2]
        found.append(DOCUMENT["components"]["examples"][name]["value"] if name else one["value"])
    return found


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_everything_has_an_example_that_is_valid(name: str) -> None:
    for where, kind, content in contents(OPERATIONS[name]):
        shown = examples(content)
        assert shown, (where, kind)
        if "json" not in kind:
            continue
        schema = {**content["schema"], "components": DOCUMENT["components"]}
        for example in shown:
            jsonschema.Draft202012Validator(schema).validate(example)


def test_no_example_is_of_something_that_is_gone() -> None:
    from service.document import _examples

    assert set(_examples()) <= set(OPERATIONS)
    for name, told in _examples().items():
        assert set(told) <= set(OPERATIONS[name]["responses"]), name
