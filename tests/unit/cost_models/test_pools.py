"""Pools: defaults come from the device, every one of them can be overridden, wrong numbers get one line."""

from typing import Any

import pytest

from cost_models import catalog
from cost_models.errors import MeshwrightError, SpecError
from cost_models.pools import pool
from cost_models.specs.cluster import DeviceSpec
from cost_models.units import GIB


def test_defaults_come_from_the_device() -> None:
    default = pool(device="A100-80GB-SXM", nodes=2)
    assert (default.gpus_per_node, default.gpus, default.link_domain) == (8, 16, 8)
    assert default.intra_node_link.name == "nvlink3"
    assert default.inter_node_link.bandwidth == 25e9
    assert default.host_memory_bytes == 1024 * GIB


def test_a_rack_is_one_domain_of_many_small_nodes() -> None:
    rack = pool(device="gb200", nodes=18)
    assert (rack.gpus_per_node, rack.gpus, rack.link_domain) == (4, 72, 72)


def test_everything_can_be_overridden() -> None:
    own = pool(
        device="rtx-4090", nodes=3, gpus_per_node=2, intra_node_link="pcie-gen3",
        inter_node_link={"bandwidth": "25Gb/s", "latency_seconds": 2e-5}, host_memory="128GiB", nvme="1TB",
        price_per_gpu_hour=0.5,
    )  # fmt: skip
    assert own.gpus == 6
    assert own.intra_node_link.bandwidth == 16e9
    assert own.inter_node_link.bandwidth == 25e9 / 8
    assert (own.host_memory_bytes, own.nvme_bytes, own.price_per_gpu_hour) == (128 * GIB, 10**12, 0.5)


def test_a_named_link_can_be_adjusted() -> None:
    slow = pool(device="h100-sxm-80gb", inter_node_link={"name": "infiniband-ndr", "latency_seconds": 1e-3})
    assert (slow.inter_node_link.bandwidth, slow.inter_node_link.latency_seconds) == (50e9, 1e-3)
    assert pool(device="h100-sxm-80gb", inter_node_link="100Gb/s").inter_node_link.bandwidth == 12.5e9


def test_a_bridge_joins_two() -> None:
    assert pool(device="rtx-a6000", gpus_per_node=4, intra_node_link="nvlink-bridge-a6000").link_domain == 2
    assert pool(device="a100-sxm-80gb", link_domain=4).link_domain == 4


def test_a_cpu_shares_the_memory_of_its_host() -> None:
    host = pool(device="cpu", gpus_per_node=4, host_memory="64GiB")
    assert host.device.usable_memory_bytes == 16 * GIB


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"nodes": 0}, "nodes is 0 but must be at least 1"),
        ({"nodes": -2}, "nodes is -2"),
        ({"gpus_per_node": 0}, "gpus_per_node is 0 but must be at least 1"),
        ({"gpus_per_node": 2.5}, "gpus_per_node is 2.5 but must be a whole number"),
        ({"intra_node_link": "nvlonk4"}, "unknown link 'nvlonk4'; did you mean nvlink4"),
        ({"inter_node_link": {"bandwidth": -1}}, "bandwidth: Input should be greater than or equal to 1"),
        ({"inter_node_link": {"bandwidth": "50GB/s", "colour": "red"}}, "inter_node_link: colour"),
        ({"host_memory": "80 parsecs"}, "host_memory: memory size '80 parsecs': unknown unit 'parsecs'"),
        ({"host_memory": -1}, "host_memory is -1 bytes"),
        ({"price_per_gpu_hour": -1.0}, "price_per_gpu_hour is -1.0 but must be at least 0"),
        ({"price_per_gpu_hour": float("nan")}, "price_per_gpu_hour"),
        ({"device": "h100-sxm-8gb"}, "unknown device 'h100-sxm-8gb'; did you mean"),
    ],
)
def test_wrong_numbers_get_one_line(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(MeshwrightError) as caught:
        pool(**({"device": "h100-sxm-80gb"} | wrong))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"memory_bandwidth": 0}, "memory_bandwidth: Input should be greater than or equal to 1; got 0"),
        ({"pcie_bandwidth": -1}, "pcie_bandwidth: Input should be greater than or equal to 1; got -1"),
        ({"link_bandwidth": 5e-324}, "link_bandwidth: Input should be greater than or equal to 1; got 5e-324"),
        ({"peak_flops": {"bf16": 1e-300}}, "peak_flops.bf16: Input should be greater than or equal to 1; got 1e-300"),
        ({"usable_memory_interval_bytes": [9, 1]}, "usable_memory_interval_bytes: least 9 exceeds most 1"),
    ],
)
def test_a_device_that_no_one_could_have_built_is_refused(wrong: dict[str, Any], message: str) -> None:
    stated = catalog.device("a100-sxm-80gb").model_dump(mode="json")
    with pytest.raises(SpecError) as caught:
        DeviceSpec.read(stated | wrong)
    assert message in str(caught.value)
