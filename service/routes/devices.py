"""Devices that the catalogue knows by name."""

from typing import Annotated

from fastapi import APIRouter, Path

from cost_models import catalog
from cost_models.errors import UnknownName
from cost_models.specs.cluster import DeviceSpec
from service import problem_kinds as kinds
from service.errors import NotFound
from service.paging import PageCursor, Paged, Text
from service.problems import documented
from service.reading import StrictRoute

router = APIRouter(prefix="/v1/devices", tags=["catalogue"], route_class=StrictRoute)


class DevicePage(Paged):
    """Devices, by name."""

    items: tuple[DeviceSpec, ...]


@router.get("", responses=documented(kinds.INVALID))
async def list_devices(cursor: PageCursor, text: Text = "") -> DevicePage:
    """Devices, by name, with their published facts and sources."""
    known = {spec.name: spec for spec in catalog.devices()}
    names, after = cursor.some(known, text)
    return DevicePage(items=tuple(known[name] for name in names), next_page_token=cursor.next(after))


@router.get("/{name}", responses=documented(kinds.NOT_FOUND, kinds.INVALID))
async def get_device(name: Annotated[str, Path(max_length=100, description="or an alias")]) -> DeviceSpec:
    """One device."""
    try:
        return catalog.device(name)
    except UnknownName as error:
        raise NotFound(str(error)) from error
