"""A probe's figures as a pool: `cluster: {device: ./probe.yaml}` of a request plans for exactly this node."""

from typing import Any

from cost_models import catalog
from cost_models.errors import UnknownName
from cost_models.specs.cluster import DeviceSpec, LinkSpec
from executor.errors import ProbeFailed
from executor.probe.node import Node
from executor.probe.worker import Figures


def pool_of(node: Node, figures: Figures, *, name: str, memory_bytes: int | None) -> dict[str, Any]:
    """Plain values of a pool with a device and links of its own. `memory_bytes` caps each process on a CPU.

    Raises:
        ProbeFailed: the node's GPU is none of the catalogue, whose data-sheet peaks a plan needs.
    """
    link = _link(figures, name)
    if node.gpus:
        return _written(_gpu(node, figures, link), node.memory_bytes, figures.processes, link)
    each = memory_bytes or node.available_bytes // figures.processes
    return _written(_cpu(node, figures, link, name, each), each * figures.processes, figures.processes, link)


def _written(device: DeviceSpec, host_memory: int, processes: int, link: LinkSpec | None) -> dict[str, Any]:
    pool: dict[str, Any] = {
        "device": device.model_dump(mode="json", exclude_none=True),
        "nodes": 1,
        "gpus_per_node": processes,
        "host_memory": host_memory,
    }
    if link is not None:
        for key in ("intra_node_link", "inter_node_link"):
            pool[key] = link.model_dump(mode="json", exclude_none=True)
    return pool


def _link(figures: Figures, name: str) -> LinkSpec | None:
    """The all-reduce's fit. Its rate was measured with every process at work, so it is not divided any further. The
    other collectives by their rates over it.
    """
    fit = figures.collectives.get("all_reduce")
    if fit is None:
        return None
    others = {
        f"{kind}_rate": float(f"{found.bytes_per_second / fit.bytes_per_second:.3g}")
        for kind, found in figures.collectives.items()
        if kind != "all_reduce"
    }
    return LinkSpec(
        **others,
        name=f"{name}-link",
        bandwidth=int(fit.bytes_per_second),
        latency_seconds=fit.alpha_seconds,
        measured=True,
        source=(
            f"all-reduce of fp32 over {figures.processes} processes, torch {figures.torch}: alpha-beta fit of "
            f"{len(fit.points)} sizes, relative error {fit.median_error:.0%} median, {fit.max_error:.0%} at most"
        ),
    )


def _best(figures: Figures) -> dict[str, float]:
    return {kind: max(by.values()) for kind, by in figures.matmul.items()}


def _cpu(node: Node, figures: Figures, link: LinkSpec | None, name: str, memory_bytes: int) -> DeviceSpec:
    """One process on its share of the cores. A copy within memory takes the place of PCIe, which there is none of."""
    usual = catalog.device("cpu")
    copy = int(figures.copy_bytes_per_second)
    rate = link.bandwidth if link else usual.link_bandwidth
    return usual.model_copy(
        update={
            "name": name,
            "aliases": (),
            "marketing_memory_bytes": memory_bytes,
            "total_memory_bytes": memory_bytes,
            "usable_memory_bytes": memory_bytes,
            "usable_memory_source": "stated",
            "memory_bandwidth": copy,
            "peak_flops": _best(figures),
            "matmul_flops_measured": {kind: list(by.values())[-1] for kind, by in figures.matmul.items()},
            "pcie_bandwidth": copy,
            "link_bandwidth": rate,
            "inter_node_bandwidth": rate,
            "gpus_per_node": figures.processes,
            "host_memory_bytes": memory_bytes * figures.processes,
            "source": (
                f"measured on {node.cpu} with torch {figures.torch}, {figures.processes} processes at once on "
                f"{figures.threads} thread(s) each"
            ),
            "notes": "peak_flops holds the best measured shape, matmul_flops_measured the largest one",
        }
    )


def _gpu(node: Node, figures: Figures, link: LinkSpec | None) -> DeviceSpec:
    """The catalogue's device with this node's memory and rates."""
    gpu = node.gpus[0]
    try:
        known = catalog.device_candidates(gpu.name)
    except UnknownName as error:
        raise ProbeFailed(f"{error}; describe it first, as docs/adding-a-device.md says") from None
    usual = min(known, key=lambda spec: abs(spec.total_memory_bytes - gpu.memory_bytes))
    measured: dict[str, Any] = {
        "matmul_flops_measured": _best(figures),
        "source": f"{usual.source}; measured on {node.hostname} with torch {figures.torch}, driver {gpu.driver}",
    }
    if figures.device_memory_bytes:
        seen = figures.device_memory_bytes
        total = max(gpu.memory_bytes, seen)
        measured |= {"total_memory_bytes": total, "usable_memory_bytes": seen, "usable_memory_source": "measured"}
    if link is not None:
        measured["all_reduce_bandwidth_measured"] = link.bandwidth
    return usual.model_copy(update=measured)
