"""The machine: devices, links, pools of equal nodes, clusters."""

from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from cost_models.specs.base import Spec
from cost_models.specs.model import BrokenRuleValue
from cost_models.units import Bandwidth, ByteSize, Flops


class DeviceSpec(Spec):
    """One accelerator (or a CPU socket seen as one), as published; fitted efficiencies live in the calibration."""

    name: str
    aliases: tuple[str, ...] = ()
    kind: Literal["gpu", "cpu"] = "gpu"
    vendor: str = "nvidia"
    family: str
    """Key of fitted factors: `a100`, `h100`, `b200`, `v100`, `t4`, `ada`, `ampere-consumer`, `mi300`, `cpu`, ..."""
    marketing_memory_bytes: ByteSize
    total_memory_bytes: ByteSize
    """As nvidia-smi shows it."""
    usable_memory_bytes: ByteSize
    """What torch sees; the planner fills no more than this."""
    usable_memory_source: Literal["measured", "derived", "stated"] = "derived"
    usable_memory_interval_bytes: tuple[ByteSize, ByteSize] | None = None
    """Least and most that torch shows on such devices (drivers, ECC); None where nothing is known."""
    memory_bandwidth: Bandwidth = Field(description="HBM or GDDR rate", json_schema_extra={"unit": "bytes/s"})
    peak_flops: dict[str, Flops] = Field(description="dense, by dtype: fp32, tf32, bf16, fp16, fp8, fp4, int8")
    matmul_flops_measured: dict[str, Flops] = Field(default_factory=dict)
    """Best matmul rate that someone measured (MAMF), by dtype; a ceiling for the fit."""
    all_reduce_bandwidth_measured: Bandwidth | None = None
    """Bus bandwidth of a large all-reduce in one node that someone measured."""
    pcie_bandwidth: Bandwidth = Field(description="per direction", json_schema_extra={"unit": "bytes/s"})
    link: str = Field(description="default intra-node link of a node of these, by catalogue name")
    link_bandwidth: Bandwidth = Field(description="intra-node, per device and direction")
    inter_node_link: str = Field(default="", description="default link between nodes of these, by catalogue name")
    inter_node_bandwidth: Bandwidth = Field(description="default network share of one device, per direction")
    link_domain: PositiveInt = 8
    """Devices joined by `link` at full rate: 8 in a usual node, 72 in an NVL72 rack, 1 without a link of its own."""
    gpus_per_node: PositiveInt = 8
    host_memory_bytes: ByteSize
    """Default host memory of a node of these."""
    tdp_watts: PositiveFloat | None = None
    source: str
    notes: str = ""

    @model_validator(mode="after")
    def _memory_is_real(self) -> "DeviceSpec":
        if self.usable_memory_bytes > self.total_memory_bytes:
            raise BrokenRuleValue(
                f"usable_memory_bytes {self.usable_memory_bytes} exceeds total_memory_bytes {self.total_memory_bytes}"
            )
        interval = self.usable_memory_interval_bytes
        if interval is not None and interval[0] > interval[1]:
            raise BrokenRuleValue(f"usable_memory_interval_bytes: least {interval[0]} exceeds most {interval[1]}")
        return self

    def with_usable_memory(self, size: int) -> "DeviceSpec":
        """The device with so much usable memory; one that has less in all becomes one like it with more. [bytes]"""
        larger = {"total_memory_bytes": max(self.total_memory_bytes, size)}
        stated = {"usable_memory_bytes": size, "usable_memory_source": "stated"}
        return self.model_copy(update=larger | stated)

    def multiplies(self, precision: str) -> bool:
        """Whether it can train in a precision. NVFP4 is NVIDIA's format of fp4; fp32 needs no matrix units, so every
        device computes in it, whether or not a rate is published.

        Source: NVFP4, arXiv:2509.25149 section 2; other vendors' fp4 units scale blocks of 32 (OCP MX).
        """
        if precision == "nvfp4":
            return "fp4" in self.peak_flops and self.vendor == "nvidia"
        return precision == "fp32" or precision in self.peak_flops


class LinkSpec(Spec):
    """A link as one device sees it."""

    name: str = "custom"
    aliases: tuple[str, ...] = ()
    bandwidth: Bandwidth = Field(description="per device and direction", json_schema_extra={"unit": "bytes/s"})
    latency_seconds: float = Field(default=0.0, ge=0)
    shared_by_node: bool = False
    """True for one host bridge or NIC that all devices of a node share (PCIe boxes): devices that use it at once divide
    `bandwidth`, which is what one device gets alone."""
    measured: bool = Field(default=False, description="bandwidth is what collectives reach, not what is published")
    all_gather_rate: float = Field(default=1.0, gt=0, description="rate of an all-gather over that of an all-reduce")
    reduce_scatter_rate: float = Field(default=1.0, gt=0, description="the same of a reduce-scatter")
    all_to_all_rate: float = Field(default=1.0, gt=0, description="the same of an all-to-all")
    joins: PositiveInt | None = None
    """Devices it joins, where the link itself says: 2 for an NVLink bridge."""
    source: str = ""


class NodePool(Spec):
    """Equal nodes of one device. Everything but device and counts has a default from the device."""

    device: DeviceSpec
    nodes: PositiveInt
    gpus_per_node: PositiveInt
    intra_node_link: LinkSpec
    inter_node_link: LinkSpec
    link_domain: PositiveInt
    """Devices that reach each other at `intra_node_link` speed."""
    host_memory_bytes: ByteSize
    nvme_bytes: ByteSize = 0
    price_per_gpu_hour: float | None = Field(default=None, ge=0)

    @property
    def gpus(self) -> int:
        """Devices in the pool."""
        return self.nodes * self.gpus_per_node


class ClusterSpec(Spec):
    """One or several pools."""

    pools: tuple[NodePool, ...] = Field(min_length=1)
    between_pools: LinkSpec | None = None
    """What joins nodes of different pools; None: the slower of both pools' networks."""

    @property
    def gpus(self) -> int:
        """Devices over all pools."""
        return sum(pool.gpus for pool in self.pools)
