"""Models: those of the catalogue, and those that the project has registered."""

from typing import Annotated, Literal

from fastapi import APIRouter, Body, Path, Response
from pydantic import BaseModel, ConfigDict

from cost_models import catalog
from cost_models.errors import UnknownName
from cost_models.parameters import total_parameters
from cost_models.specs.model import ModelSpec
from planner.model_source import resolve_model
from planner.request import ModelRequest
from service import problem_kinds as kinds
from service import registry
from service.callers import Caller, CurrentCaller
from service.dependencies import CurrentDatabase, IdempotencyKey
from service.idempotency import once
from service.paging import PageCursor, Paged, Text
from service.problems import documented
from service.reading import StrictRoute
from service.registry import ModelOrder
from service.storage.repositories import Repositories
from service.storage.tables import Registration

router = APIRouter(prefix="/v1/models", tags=["catalogue"], route_class=StrictRoute)
ModelName = Annotated[str, Path(max_length=200)]
EXAMPLE = {
    "name": "lab-1b",
    "architecture": {
        "hidden_size": 2048,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 8192,
        "vocab_size": 128256,
    },
}
_BODY = (kinds.INVALID, kinds.UNREADABLE, kinds.TOO_LARGE, kinds.MEDIA, kinds.CONFLICT, kinds.KEY_REUSED)


class ModelSummary(BaseModel):
    """A model that requests may name."""

    model_config = ConfigDict(frozen=True, protected_namespaces=())

    name: str
    origin: Literal["catalogue", "project"]
    parameters: int
    model_type: str
    num_hidden_layers: int
    hidden_size: int
    num_attention_heads: int
    num_key_value_heads: int
    num_experts: int | None
    vocab_size: int


class ModelPage(Paged):
    """Models, by name."""

    items: tuple[ModelSummary, ...]


@router.get("", responses=documented(kinds.INVALID, kinds.UNAVAILABLE))
async def list_models(
    caller: CurrentCaller,
    database: CurrentDatabase,
    cursor: PageCursor,
    text: Text = "",
    origin: Literal["catalogue", "project"] | None = None,
) -> ModelPage:
    """Models of the catalogue and of the project, by name."""

    def look(work: Repositories) -> tuple[tuple[ModelSummary, ...], str | None]:
        own = work.registrations.names(caller.project_id, "model") if origin != "catalogue" else ()
        shipped = catalog.models() if origin != "project" else ()
        names, after = cursor.some((*own, *shipped), text)
        rows = work.registrations.of(caller.project_id, "model", names)
        return tuple(_of_row(rows[name]) if name in rows else _summary(catalog.model(name)) for name in names), after

    items, after = await database.reading(look)
    return ModelPage(items=items, next_page_token=cursor.next(after))


@router.post("", status_code=201, responses=documented(*_BODY, kinds.UNAVAILABLE))
async def register_model(
    order: Annotated[ModelOrder, Body(openapi_examples={"numbers": {"value": EXAMPLE}})],
    caller: CurrentCaller,
    database: CurrentDatabase,
    response: Response,
    key: IdempotencyKey = None,
) -> ModelSummary:
    """Give a model a name of the project's own: requests may then say `model: {preset: NAME}`."""

    def register(work: Repositories) -> ModelSummary:
        name, _ = once(work, caller, key, "model", order, lambda: registry.register_model(work, caller, order))
        return _one(work, caller, name)

    found = await database.writing(register)
    response.headers["Location"] = f"/v1/models/{found.name}"
    return found


@router.get("/{name}", responses=documented(kinds.NOT_FOUND, kinds.INVALID, kinds.UNAVAILABLE))
async def get_model(name: ModelName, caller: CurrentCaller, database: CurrentDatabase) -> ModelSummary:
    """One model."""
    return await database.reading(lambda work: _one(work, caller, name))


@router.delete("/{name}", status_code=204, responses=documented(kinds.NOT_FOUND, kinds.INVALID, kinds.UNAVAILABLE))
async def forget_model(name: ModelName, caller: CurrentCaller, database: CurrentDatabase) -> None:
    """Free a name of the project's. Plans made with it stay, and hold the model's numbers."""
    await database.writing(lambda work: registry.forget(work, caller, "model", name))


def _one(work: Repositories, caller: Caller, name: str) -> ModelSummary:
    row = work.registrations.get(caller.project_id, "model", name)
    if row is not None:
        return _of_row(row)
    try:
        return _summary(catalog.model(name))
    except UnknownName:
        registry.found(work, caller, "model", name)
        raise


def _of_row(row: Registration) -> ModelSummary:
    return _summary(resolve_model(ModelRequest.model_validate(row.content)), row.name, "project")


def _summary(
    spec: ModelSpec, name: str | None = None, origin: Literal["catalogue", "project"] = "catalogue"
) -> ModelSummary:
    return ModelSummary(
        name=name or spec.name,
        origin=origin,
        parameters=total_parameters(spec),
        model_type=spec.model_type,
        num_hidden_layers=spec.num_hidden_layers,
        hidden_size=spec.hidden_size,
        num_attention_heads=spec.num_attention_heads,
        num_key_value_heads=spec.num_key_value_heads,
        num_experts=spec.moe.num_experts if spec.moe is not None else None,
        vocab_size=spec.vocab_size,
    )
