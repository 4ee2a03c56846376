"""The pool of a measured row: device, nodes, and the links that its free text names."""

import re
from typing import Any, Final

from cost_models import catalog
from cost_models.errors import SpecError
from cost_models.pools import pool
from cost_models.specs.cluster import DeviceSpec, NodePool
from planner.datasets.unusable import Unusable
from planner.measurement import Measurement

_RATE: Final = re.compile(r"~?(\d[\d,.]*) ?G(?:b/s|bps|bit/s)", re.IGNORECASE)
_COUNT: Final = re.compile(r"(\d+) ?x [^+;]*?(\d[\d,.]*) ?G(?:b/s|bps)", re.IGNORECASE)
_NETWORK: Final = re.compile(
    r"ib\b|infiniband|hdr|ndr|edr|roce|rdma|omni-?path|ethernet|efa|cx-\d|node-node|slingshot", re.IGNORECASE
)
_GBIT: Final = 1e9 / 8
_MEMORY_NAMES: Final = 0.05
"""How far two names of one memory size differ (180, 186 and 192 GB of one board are two sizes)."""


def pool_of(row: Measurement) -> tuple[NodePool, tuple[str, ...], bool]:
    """The pool, the other devices that the name may mean, and whether they differ in memory.

    Raises:
        Unusable: no device or count, an unknown device, or a name that several families share.
    """
    if not row.gpu:
        raise Unusable("device not stated")
    if row.n_gpus is None:
        raise Unusable("world size not stated")
    try:
        candidates = catalog.device_candidates(row.gpu)
    except SpecError as error:
        raise Unusable(f"device not in the catalogue: {row.gpu}") from error
    candidates = tuple(device for device in candidates if _has_memory(device, row)) or candidates
    if len({device.family for device in candidates}) > 1:
        raise Unusable("ambiguous device")
    device = candidates[0]
    per_node = min(row.gpus_per_node or device.gpus_per_node, row.n_gpus)
    nodes = -(-row.n_gpus // per_node)
    try:
        found = pool(
            device=device.name, nodes=nodes, gpus_per_node=per_node,
            intra_node_link=_intra(row), inter_node_link=_inter(row, per_node),
        )  # fmt: skip
    except SpecError as error:
        raise Unusable(f"cluster contradicts itself: {error}") from error
    others = tuple(other.name for other in candidates[1:])
    return found, others, len({other.usable_memory_bytes for other in candidates}) > 1


def _has_memory(device: DeviceSpec, row: Measurement) -> bool:
    """Whether a device is of the size that the row prints; a row without a size fits all."""
    printed = row.gpu_mem_gb
    return printed is None or abs(device.marketing_memory_bytes / 1e9 / printed - 1) <= _MEMORY_NAMES


def _intra(row: Measurement) -> str | None:
    """PCIe between the devices of a node where the row says so and its device has a link of its own."""
    text = row.interconnect.lower()
    if text.startswith("pcie") and "nvlink" not in text:
        device = catalog.device(row.gpu)
        return None if device.link.startswith("pcie") else "pcie-gen4"
    return None


def _inter(row: Measurement, per_node: int) -> Any:
    """A network rate per device: stated per GPU, stated per node and shared out, or one port that a node shares."""
    text = row.interconnect
    network = _NETWORK.search(text)
    if network is None:
        return None
    latency = catalog.link("infiniband-ndr").latency_seconds
    count = _COUNT.search(text)
    rate = _RATE.search(text)
    if count is not None:
        total = int(count.group(1)) * _number(count.group(2))
        return _link(total / per_node, latency, text)
    if rate is None:
        return None
    bits = _number(rate.group(1))
    if re.search(r"per gpu|/gpu", text, re.IGNORECASE):
        return _link(bits, latency, text)
    if re.search(r"node", text, re.IGNORECASE) or text.strip().startswith("~") or "~" in text:
        return _link(bits / per_node, latency, text)
    return {
        "bandwidth": bits * _GBIT,
        "latency_seconds": latency,
        "shared_by_node": True,
        "name": _kind(text),
        "source": "stated",
    }


def _link(gigabits: float, latency: float, text: str) -> dict[str, Any]:
    return {"bandwidth": gigabits * _GBIT, "latency_seconds": latency, "name": _kind(text), "source": "stated"}


def _kind(text: str) -> str:
    """The kind of network, where its calibration differs from the rest: Omni-Path has no GPU-direct transfers."""
    return "omni-path" if re.search(r"omni-?path", text, re.IGNORECASE) else "stated"


def _number(text: str) -> float:
    return float(text.replace(",", ""))
