"""Devices that the catalogue knows by name."""

from typing import Annotated

from fastapi import APIRouter, Path, Query

from cost_models import catalog
from cost_models.errors import UnknownName
from cost_models.specs.cluster import DeviceSpec
from service import problem_kinds as kinds
from service.errors import NotFound
from service.problems import documented
from service.reading import StrictRoute

router = APIRouter(prefix="/v1/devices", tags=["catalogue"], route_class=StrictRoute)
Text = Annotated[str, Query(description="only names that contain this", max_length=100)]


@router.get("", responses=documented(kinds.INVALID))
def list_devices(text: Text = "") -> list[DeviceSpec]:
    """Devices, by name, with their published facts and sources."""
    return [spec for spec in catalog.devices() if text.lower() in spec.name]


@router.get("/{name}", responses=documented(kinds.NOT_FOUND, kinds.INVALID))
def get_device(name: Annotated[str, Path(max_length=100, description="or an alias")]) -> DeviceSpec:
    """One device."""
    try:
        return catalog.device(name)
    except UnknownName as error:
        raise NotFound(str(error)) from error
