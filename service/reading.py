"""Bodies from the wire: declared JSON, strictly parsed, free of paths and downloads."""

import asyncio
import math
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Final

from fastapi import Body, Request, Response
from fastapi.routing import APIRoute

from cost_models.specs.fields import LARGEST_INTEGER
from planner.errors import RequestUnreadable
from planner.reading import read_json
from service import queries
from service.orders import Order, PlanOrder
from service.problems import NotJson, UnreadableBody

MOST_VALUES: Final = 2048
"""Most values of a body outside of its model's config.json."""
SHORT_BODY: Final = 2**14
"""[bytes]"""
MOST_MARKS: Final = 32_768
"""Most commas and opening brackets of a body, which bound its values before any is made."""

_TABLES: Final = ("config", "architecture", "layers")
"""Parts of a model that may be long: what others have written, and the kind of every layer."""
JOB_EXAMPLE: Final[dict[str, Any]] = {
    "model": {"preset": "llama-2-7b"},
    "cluster": {"pools": [{"device": "a100-sxm-80gb", "nodes": 1, "gpus_per_node": 8}]},
    "training": {"method": "full", "sequence_length": 4096, "global_batch_size": 128},
}
CONFIGURATION_EXAMPLE: Final[dict[str, Any]] = {
    "backend": {"name": "deepspeed"},
    "data_parallel": 8,
    "zero_stage": 3,
    "micro_batch_size": 2,
    "gradient_accumulation_steps": 8,
    "stages": [{"layers": 32, "recompute": {"full": 32}}],
}
PlanBody = Annotated[
    PlanOrder,
    Body(
        openapi_examples={
            "llama-2-7b": {"summary": "Llama-2-7B on 8 x A100-80GB", "value": JOB_EXAMPLE},
            "named cluster": {
                "summary": "On a registered cluster, with a message when it is made",
                "value": {**JOB_EXAMPLE, "cluster": "lab", "webhook": {"url": "https://scheduler.example.com/plans"}},
            },
        }
    ),
]
EstimateBody = Annotated[
    Order,
    Body(
        openapi_examples={
            "llama-2-7b": {
                "summary": "ZeRO-3 with full recompute",
                "value": {**JOB_EXAMPLE, "configuration": CONFIGURATION_EXAMPLE},
            }
        }
    ),
]


class StrictRequest(Request):
    """A request whose JSON has no repeated keys, no NaN, no infinity, and no number that would lose digits."""

    most_values = MOST_VALUES

    async def json(self) -> Any:
        """The body, as one JSON object."""
        if not hasattr(self, "_strict"):
            body = await self.body()
            # Most bodies are parsed sooner than a thread is reached; one at the limit would hold up the event loop.
            if len(body) <= SHORT_BODY:
                self._strict = _read(body, self.most_values)
            else:
                self._strict = await asyncio.to_thread(_read, body, self.most_values)
        return self._strict


class StrictRoute(APIRoute):
    """A route that reads its body strictly, accepts nothing but JSON, and knows every parameter of its query."""

    most_values = MOST_VALUES

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler of FastAPI behind the checks."""
        handle, known = super().get_route_handler(), frozenset(queries.taken(self.dependant))

        async def strictly(request: Request) -> Response:
            if request.scope["query_string"]:
                queries.check(request.query_params, known)
            if self.body_field is not None:
                stated = request.headers.get("content-type")
                if stated is None or stated.partition(";")[0].strip().lower() != "application/json":
                    raise NotJson(stated)
            strict = StrictRequest(request.scope, request.receive)
            strict.most_values = self.most_values
            return await handle(strict)

        return strictly


class WideRoute(StrictRoute):
    """For bodies that are tables."""

    most_values = MOST_MARKS


def _read(body: bytes, most_values: int) -> dict[str, Any]:
    # Parsing holds the interpreter's lock, so that a thread alone does not keep the event loop going.
    marks = sum(body.count(mark) for mark in (b",", b"[", b"{"))
    if marks > MOST_MARKS:
        raise UnreadableBody(f"the body holds {marks} commas and brackets, the limit is {MOST_MARKS}")
    try:
        found = read_json(body, "the body")
    except RequestUnreadable as error:
        raise UnreadableBody(str(error)) from error
    _check_numbers(found)
    model = found.get("model")
    # Validation, on the event loop, names every complaint: it gets no more values than it can name in milliseconds.
    own = {**found, "model": {**model, **dict.fromkeys(_TABLES)}} if isinstance(model, dict) else found
    if (count := _count(own)) > most_values:
        raise UnreadableBody(f"the body holds {count} values outside model.config, the limit is {most_values}")
    return found


def _count(value: Any) -> int:
    """Keys and values, at every depth."""
    count, open_values = 0, [value]
    while open_values:
        found = open_values.pop()
        count += 1
        if isinstance(found, dict):
            open_values += found.values()
        elif isinstance(found, list):
            open_values += found
    return count


def _check_numbers(value: Any) -> None:
    """Refuse numbers that another reader would see differently."""
    open_values = [value]
    while open_values:
        found = open_values.pop()
        if isinstance(found, dict):
            open_values += found.values()
        elif isinstance(found, list):
            open_values += found
        elif isinstance(found, float) and not math.isfinite(found):
            raise UnreadableBody("a number of the body is larger than a double can hold")
        elif isinstance(found, int) and abs(found) > LARGEST_INTEGER:
            raise UnreadableBody(f"an integer of the body lies beyond {LARGEST_INTEGER}, which JSON readers round")
