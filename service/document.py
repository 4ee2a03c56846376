"""The OpenAPI document: FastAPI's, with problem+json for errors, what operations ask of callers, and examples."""

import json
from functools import cache
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from service import problem_kinds as kinds
from service import problems
from service.routes.health import Unready
from service.security.access import ACCESS
from service.security.gate import guarded

_EXAMPLES: Final = Path(__file__).with_name("examples.json")


def of(app: FastAPI) -> dict[str, Any]:
    """The document, made once."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes, tags=app.openapi_tags
        )
        schemas = document["components"]["schemas"]
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        for model in (problems.Problem, problems.FieldProblem, Unready):
            schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
            schema.pop("$defs", None)
            schemas[model.__name__] = schema
        document["components"]["schemas"] = dict(sorted(schemas.items()))
        _declare_callers(document)
        _show(document)
        app.openapi_schema = document
    return app.openapi_schema


def _declare_callers(document: dict[str, Any]) -> None:
    """What each operation asks of its caller, and how it refuses one."""
    document["components"]["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer", "description": "an API key, or a token of the OIDC provider"}
    }
    refusals = problems.documented(kinds.UNAUTHENTICATED, kinds.FORBIDDEN, kinds.RATE_LIMITED)
    for path, operations in document["paths"].items():
        for operation in operations.values() if guarded(path) else ():
            operation["security"] = [{"bearer": []}]
            operation["x-meshwright-scope"] = ACCESS.get(operation["operationId"], "nobody")
            operation["responses"] = dict(sorted({**refusals, **operation["responses"]}.items()))


def _show(document: dict[str, Any]) -> None:
    """Put an example beside every response; equal ones are kept once."""
    shown = {slug: _refusal(kind) for slug, kind in kinds.KINDS.items()}
    names: dict[str, str] = {}
    for operations in document["paths"].values():
        for operation in operations.values():
            for status, told in _examples().get(operation["operationId"], {}).items():
                text = json.dumps(told["example"])
                name = names.setdefault(text, f"{operation['operationId']}_{status}")
                shown[name] = {"value": told["example"]}
                content = operation["responses"][status].setdefault("content", {}).setdefault(told["content"], {})
                content["examples"] = {name: {"$ref": f"#/components/examples/{name}"}}
    document["components"]["examples"] = shown


def _refusal(kind: kinds.Kind) -> dict[str, Any]:
    found = problems.problem(kind, kind.about, instance="00000000000000000000000000000001")
    return {"summary": kind.title, "value": found.model_dump(exclude_none=True, mode="json")}


@cache
def _examples() -> dict[str, dict[str, dict[str, Any]]]:
    """What the service answered, by operation and status (docs/generate_answers.py writes it)."""
    found: dict[str, dict[str, dict[str, Any]]] = json.loads(_EXAMPLES.read_text(encoding="utf-8"))
    return found
