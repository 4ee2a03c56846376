"""Clusters under names, so that a scheduler posts only the name."""

from typing import Annotated

from fastapi import APIRouter, Body, Path, Response

from service import problem_kinds as kinds
from service import registry
from service.callers import CurrentCaller
from service.dependencies import CurrentDatabase, IdempotencyKey
from service.idempotency import once
from service.paging import PageCursor, Paged, Text
from service.problems import documented
from service.reading import StrictRoute
from service.registry import ClusterOrder, NamedCluster
from service.storage.repositories import Repositories

router = APIRouter(prefix="/v1/clusters", tags=["clusters"], route_class=StrictRoute)
ClusterName = Annotated[str, Path(max_length=200)]
EXAMPLE = {"name": "lab", "pools": [{"device": "a100-sxm-80gb", "nodes": 4, "gpus_per_node": 8}]}
_BODY = (kinds.INVALID, kinds.UNREADABLE, kinds.TOO_LARGE, kinds.MEDIA, kinds.CONFLICT, kinds.KEY_REUSED)


class ClusterPage(Paged):
    """Clusters, by name."""

    items: tuple[NamedCluster, ...]


@router.get("", responses=documented(kinds.INVALID, kinds.UNAVAILABLE))
async def list_clusters(
    caller: CurrentCaller, database: CurrentDatabase, cursor: PageCursor, text: Text = ""
) -> ClusterPage:
    """Clusters of the project, by name."""

    def look(work: Repositories) -> tuple[tuple[NamedCluster, ...], str | None]:
        names, after = cursor.some(work.registrations.names(caller.project_id, "cluster"), text)
        rows = work.registrations.of(caller.project_id, "cluster", names)
        return tuple(registry.named_cluster(rows[name]) for name in names), after

    items, after = await database.reading(look)
    return ClusterPage(items=items, next_page_token=cursor.next(after))


@router.post("", status_code=201, responses=documented(*_BODY, kinds.UNAVAILABLE))
async def register_cluster(
    order: Annotated[ClusterOrder, Body(openapi_examples={"lab": {"value": EXAMPLE}})],
    caller: CurrentCaller,
    database: CurrentDatabase,
    response: Response,
    key: IdempotencyKey = None,
) -> NamedCluster:
    """Give a cluster a name: requests may then say `cluster: NAME`."""

    def register(work: Repositories) -> NamedCluster:
        name, _ = once(work, caller, key, "cluster", order, lambda: registry.register_cluster(work, caller, order))
        return registry.named_cluster(registry.found(work, caller, "cluster", name))

    found = await database.writing(register)
    response.headers["Location"] = f"/v1/clusters/{found.name}"
    return found


@router.get("/{name}", responses=documented(kinds.NOT_FOUND, kinds.INVALID, kinds.UNAVAILABLE))
async def get_cluster(name: ClusterName, caller: CurrentCaller, database: CurrentDatabase) -> NamedCluster:
    """One cluster."""
    row = await database.reading(lambda work: registry.found(work, caller, "cluster", name))
    return registry.named_cluster(row)


@router.delete("/{name}", status_code=204, responses=documented(kinds.NOT_FOUND, kinds.INVALID, kinds.UNAVAILABLE))
async def forget_cluster(name: ClusterName, caller: CurrentCaller, database: CurrentDatabase) -> None:
    """Free a name. Plans made for the cluster stay, and hold what it stood for."""
    await database.writing(lambda work: registry.forget(work, caller, "cluster", name))
