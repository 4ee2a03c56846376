"""Pools of nodes from a few stated numbers; whatever is left open comes from the device."""

from collections.abc import Mapping
from typing import Any

from cost_models import catalog
from cost_models.errors import BrokenRule, MissingKey, SpecError, within
from cost_models.specs.cluster import DeviceSpec, LinkSpec, NodePool
from cost_models.units import parse_bandwidth, parse_bytes

LinkChoice = str | Mapping[str, Any] | LinkSpec | None
"""A catalogue name, a bandwidth such as `400Gb/s`, the fields of a `LinkSpec`, or None for the device's default."""


def pool(  # noqa: PLR0913  keywords, one for each number a user may state
    *,
    device: str | DeviceSpec,
    nodes: int = 1,
    gpus_per_node: int | None = None,
    intra_node_link: LinkChoice = None,
    inter_node_link: LinkChoice = None,
    link_domain: int | None = None,
    host_memory: str | int | None = None,
    nvme: str | int = 0,
    price_per_gpu_hour: float | None = None,
) -> NodePool:
    """A pool of `nodes` equal nodes; every number left out is the device's own default.

    Raises:
        UnknownName: no such device or link.
        BrokenRule: a count is not positive, or a price is negative.
        SpecError: a size or a link cannot be read.
    """
    spec = catalog.device(device) if isinstance(device, str) else device
    per_node = spec.gpus_per_node if gpus_per_node is None else gpus_per_node
    _at_least_one("nodes", nodes)
    _at_least_one("gpus_per_node", per_node)
    if price_per_gpu_hour is not None and price_per_gpu_hour < 0:
        raise BrokenRule(f"price_per_gpu_hour is {price_per_gpu_hour} but must be at least 0")
    host = _size("host_memory", host_memory, spec.host_memory_bytes)
    intra = _link(intra_node_link, "intra_node_link", spec.link, spec)
    return NodePool.read(
        {
            "device": _with_share_of_host(spec, host, per_node),
            "nodes": nodes,
            "gpus_per_node": per_node,
            "intra_node_link": intra,
            "inter_node_link": _link(inter_node_link, "inter_node_link", spec.inter_node_link, spec),
            "link_domain": _domain(spec, intra, per_node, stated=intra_node_link is not None, link_domain=link_domain),
            "host_memory_bytes": host,
            "nvme_bytes": _size("nvme", nvme, 0),
            "price_per_gpu_hour": price_per_gpu_hour,
        }
    )


def _at_least_one(key: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise BrokenRule(f"{key} is {value!r} but must be a whole number")
    if value < 1:
        raise BrokenRule(f"{key} is {value} but must be at least 1")


def _size(key: str, value: str | int | None, default: int) -> int:
    try:
        size = default if value is None else parse_bytes(value)
    except SpecError as error:
        raise SpecError(f"{key}: {error}") from error
    if size < 0:
        raise BrokenRule(f"{key} is {size} bytes but must be at least 0")
    return size


def _link(choice: LinkChoice, key: str, default: str, device: DeviceSpec) -> LinkSpec:
    with within(key):
        return _linked(choice, key, default, device)


def _linked(choice: LinkChoice, key: str, default: str, device: DeviceSpec) -> LinkSpec:
    if choice is None:
        if not default:
            raise MissingKey(key, f"pool of {device.name}", "the device has no default")
        return catalog.link(default)
    if isinstance(choice, LinkSpec):
        return choice
    if isinstance(choice, str):
        if choice[:1].isdigit() and choice.endswith(("/s", "bps")):
            return LinkSpec(name="custom", bandwidth=parse_bandwidth(choice), source="stated")
        return catalog.link(choice)
    if "name" in choice and "bandwidth" not in choice:
        base = catalog.link(str(choice["name"])).model_dump()
        return LinkSpec.read(base | dict(choice))
    try:
        return LinkSpec.read({"source": "stated", **choice})
    except SpecError as error:
        found = SpecError(f"{key}: {error}")
        found.places = error.places
        raise found from error


def _domain(spec: DeviceSpec, intra: LinkSpec, per_node: int, *, stated: bool, link_domain: int | None) -> int:
    """Devices joined at the intra-node rate: one NVLink domain, or the devices of a node over its host bridge."""
    if link_domain is not None:
        _at_least_one("link_domain", link_domain)
        return link_domain
    if intra.joins is not None:
        return min(intra.joins, per_node)
    if stated and intra.name != spec.link:
        return per_node
    if spec.link_domain > spec.gpus_per_node:
        return spec.link_domain
    return per_node


def _with_share_of_host(spec: DeviceSpec, host_bytes: int, per_node: int) -> DeviceSpec:
    """A CPU device's memory is an equal share of its host's; accelerators keep their own."""
    if spec.kind != "cpu":
        return spec
    share = host_bytes // per_node
    memory = {"marketing_memory_bytes": share, "total_memory_bytes": share, "usable_memory_bytes": share}
    return spec.model_copy(update=memory)
