"""Devices that the catalogue knows by name, and those that a project has named."""

from typing import Annotated, Literal

from fastapi import APIRouter, Body, Path, Response
from pydantic import Field

from cost_models import catalog
from cost_models.errors import UnknownName
from cost_models.specs.cluster import DeviceSpec
from planner.request import PoolRequest
from service import problem_kinds as kinds
from service import registry
from service.callers import Caller, CurrentCaller
from service.dependencies import CurrentDatabase, IdempotencyKey
from service.errors import NotFound
from service.idempotency import once
from service.paging import PageCursor, Paged, Text
from service.problems import documented
from service.reading import StrictRoute
from service.registry import DeviceOrder
from service.storage.repositories import Repositories
from service.storage.tables import Registration

router = APIRouter(prefix="/v1/devices", tags=["catalogue"], route_class=StrictRoute)
DeviceName = Annotated[str, Path(max_length=200, description="or an alias")]
EXAMPLE = {
    "name": "lab-node",
    "device": {
        "name": "lab-node",
        "kind": "cpu",
        "vendor": "any",
        "family": "cpu",
        "marketing_memory_bytes": 2_147_483_648,
        "total_memory_bytes": 2_147_483_648,
        "usable_memory_bytes": 2_147_483_648,
        "usable_memory_source": "stated",
        "memory_bandwidth": 9_000_000_000,
        "peak_flops": {"fp32": 7.2e10, "bf16": 2.1e10},
        "pcie_bandwidth": 9_000_000_000,
        "link": "gloo-loopback",
        "link_bandwidth": 1_000_000_000,
        "inter_node_link": "gloo-loopback",
        "inter_node_bandwidth": 1_000_000_000,
        "host_memory_bytes": 4_294_967_296,
        "source": "meshwright-exec probe",
    },
    "gpus_per_node": 2,
    "intra_node_link": {
        "name": "lab-node-link",
        "bandwidth": 1_000_000_000,
        "latency_seconds": 0.0001,
        "measured": True,
    },
}
_BODY = (kinds.INVALID, kinds.UNREADABLE, kinds.TOO_LARGE, kinds.MEDIA, kinds.CONFLICT, kinds.KEY_REUSED)


class KnownDevice(DeviceSpec):
    """A device as requests know it."""

    origin: Literal["catalogue", "project"]
    pool: PoolRequest | None = Field(
        default=None, description="of the project's own: what pools of it get where they state nothing else"
    )


class DevicePage(Paged):
    """Devices, by name."""

    items: tuple[KnownDevice, ...]


@router.get("", responses=documented(kinds.INVALID, kinds.UNAVAILABLE))
async def list_devices(
    caller: CurrentCaller, database: CurrentDatabase, cursor: PageCursor, text: Text = ""
) -> DevicePage:
    """Devices of the project and of the catalogue, by name, with their facts and where those are from."""
    shipped = {spec.name: spec for spec in catalog.devices()}

    def look(work: Repositories) -> tuple[tuple[KnownDevice, ...], str | None]:
        own = work.registrations.names(caller.project_id, "device")
        names, after = cursor.some((*own, *shipped), text)
        rows = work.registrations.of(caller.project_id, "device", names)
        return tuple(_own(rows[name]) if name in rows else _shipped(shipped[name]) for name in names), after

    items, after = await database.reading(look)
    return DevicePage(items=items, next_page_token=cursor.next(after))


@router.post("", status_code=201, responses=documented(*_BODY, kinds.UNAVAILABLE))
async def register_device(
    order: Annotated[DeviceOrder, Body(openapi_examples={"a probed node": {"value": EXAMPLE}})],
    caller: CurrentCaller,
    database: CurrentDatabase,
    response: Response,
    key: IdempotencyKey = None,
) -> KnownDevice:
    """Give a device a name of the project's own: pools of requests and clusters may then say `device: NAME`."""

    def register(work: Repositories) -> KnownDevice:
        name, _ = once(work, caller, key, "device", order, lambda: registry.register_device(work, caller, order))
        return _one(work, caller, name)

    found = await database.writing(register)
    response.headers["Location"] = f"/v1/devices/{found.name}"
    return found


@router.get("/{name}", responses=documented(kinds.NOT_FOUND, kinds.INVALID, kinds.UNAVAILABLE))
async def get_device(name: DeviceName, caller: CurrentCaller, database: CurrentDatabase) -> KnownDevice:
    """One device."""
    return await database.reading(lambda work: _one(work, caller, name))


@router.delete("/{name}", status_code=204, responses=documented(kinds.NOT_FOUND, kinds.INVALID, kinds.UNAVAILABLE))
async def forget_device(name: DeviceName, caller: CurrentCaller, database: CurrentDatabase) -> None:
    """Free a name of the project's. Plans and clusters made with it stay, and hold what it stood for."""
    await database.writing(lambda work: registry.forget(work, caller, "device", name))


def _one(work: Repositories, caller: Caller, name: str) -> KnownDevice:
    row = work.registrations.get(caller.project_id, "device", name)
    if row is not None:
        return _own(row)
    try:
        return _shipped(catalog.device(name))
    except UnknownName as error:
        raise NotFound(str(error)) from error


def _own(row: Registration) -> KnownDevice:
    pool = PoolRequest.model_validate(row.content)
    assert isinstance(pool.device, DeviceSpec)
    return KnownDevice(**dict(pool.device) | {"name": row.name}, origin="project", pool=pool)


def _shipped(spec: DeviceSpec) -> KnownDevice:
    return KnownDevice(**dict(spec), origin="catalogue")
