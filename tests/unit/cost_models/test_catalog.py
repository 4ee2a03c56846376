"""The shipped devices and links: every published spelling resolves, every figure has a source, every rule holds."""

import pytest

from cost_models import catalog
from cost_models.errors import UnknownName
from cost_models.units import GIB, MIB

# Spelling in published tables -> catalogue name.
PUBLISHED = {
    "V100-16GB-SXM2": "v100-sxm-16gb", "V100-32GB-SXM2": "v100-sxm-32gb", "V100-32GB (DGX-2)": "v100-sxm-32gb",
    "A100-40GB-PCIe": "a100-pcie-40gb", "A100-40GB-SXM4": "a100-sxm-40gb", "A100-40GB": "a100-sxm-40gb",
    "A100-80GB-PCIe": "a100-pcie-80gb", "A100-80GB-SXM": "a100-sxm-80gb", "A100-80GB": "a100-sxm-80gb",
    "A800-80GB-SXM": "a800-sxm-80gb", "A800-80GB-PCIe": "a800-pcie-80gb", "H100-80GB-PCIe": "h100-pcie-80gb",
    "H100-80GB-SXM": "h100-sxm-80gb", "H800-80GB-SXM": "h800-sxm-80gb", "H20-96GB-SXM": "h20-sxm-96gb",
    "H200-141GB-SXM": "h200-sxm", "H200-141GB": "h200-sxm", "B200-180GB-SXM": "b200", "B200": "b200",
    "B300-288GB-SXM": "b300", "B300": "b300", "GB200": "gb200", "GB300": "gb300", "L4": "l4", "L40S": "l40s",
    "A10": "a10", "A10G": "a10g", "A10G-24GB": "a10g", "A6000": "rtx-a6000", "RTX-A6000-48GB": "rtx-a6000",
    "RTX3090": "rtx-3090",
    "RTX4090": "rtx-4090", "RTX5090": "rtx-5090", "T4": "t4", "MI250X": "mi250x", "MI300X": "mi300x",
    "MI325X": "mi325x", "MI355X": "mi355x", "H100-96GB-HBM2e-500W": "h100-sxm-96gb",
    "H100-95GB-HBM2e-SXM": "h100-sxm-96gb",
    "export H100": "h800-sxm-80gb", "export Hopper": "h20-sxm-96gb", "AWS g5": "a10g", "RTX A6000": "rtx-a6000",
}  # fmt: skip
PRODUCT_NAMES = {
    "NVIDIA A100-SXM4-80GB": "a100-sxm-80gb", "NVIDIA H100 80GB HBM3": "h100-sxm-80gb", "Tesla T4": "t4",
    "NVIDIA GeForce RTX 4090": "rtx-4090", "Tesla V100-SXM2-32GB": "v100-sxm-32gb", "NVIDIA L40S": "l40s",
    "AMD Instinct MI300X": "mi300x", "NVIDIA A100 80GB PCIe": "a100-pcie-80gb", "A100-80G": "a100-sxm-80gb",
    "MI300X-OAM": "mi300x", "A800 80G": "a800-sxm-80gb",
}  # fmt: skip
AMBIGUOUS = ("A100", "V100", "H100", "A800/H800-80GB (not separated)", "export A100", "per GPU of NVL72")


@pytest.mark.parametrize(("spelling", "name"), [*PUBLISHED.items(), *PRODUCT_NAMES.items()])
def test_every_published_spelling_resolves_in_any_case(spelling: str, name: str) -> None:
    for text in (spelling, spelling.lower(), spelling.upper(), spelling.replace("-", " ")):
        assert catalog.device(text).name == name
        assert not catalog.is_ambiguous(text)


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_a_name_that_says_too_little_is_marked(name: str) -> None:
    assert catalog.is_ambiguous(name)
    assert len(catalog.device_candidates(name)) > 1
    assert catalog.device(name) == catalog.device_candidates(name)[0]


def test_a_bare_a100_is_one_family() -> None:
    assert {device.family for device in catalog.device_candidates("a100")} == {"a100"}


def test_every_device_states_sane_figures_and_its_source() -> None:
    for device in catalog.devices():
        assert device.source, device.name
        assert 0.9 * device.total_memory_bytes < device.usable_memory_bytes <= device.total_memory_bytes, device.name
        assert catalog.link(device.link).bandwidth == device.link_bandwidth, device.name
        assert catalog.link(device.inter_node_link).bandwidth == device.inter_node_bandwidth, device.name
        assert "usable" in device.notes or device.kind == "cpu", device.name
        if device.usable_memory_interval_bytes is not None:
            least, most = device.usable_memory_interval_bytes
            assert least <= device.usable_memory_bytes <= most, device.name
        for dtype, rate in device.matmul_flops_measured.items():
            assert rate <= device.peak_flops[dtype], device.name


def test_known_figures() -> None:
    a100 = catalog.device("a100-sxm-80gb")
    assert a100.usable_memory_bytes == 81050 * MIB
    assert a100.peak_flops["bf16"] == 312e12
    assert (a100.memory_bandwidth, a100.link_bandwidth, a100.inter_node_bandwidth) == (2039e9, 300e9, 25e9)
    assert catalog.device("t4").usable_memory_bytes == 14912 * MIB
    assert "bf16" not in catalog.device("t4").peak_flops
    assert catalog.device("mi250x").total_memory_bytes == 64 * GIB
    assert (catalog.device("gb200").link_domain, catalog.device("gb200").gpus_per_node) == (72, 4)


def test_unknown_names_offer_close_ones() -> None:
    with pytest.raises(UnknownName, match="h100-sxm-80gb"):
        catalog.device("h100-sxm-81gb")
    with pytest.raises(UnknownName, match="nvlink4"):
        catalog.link("nvlink44")


def test_the_hash_is_stable_within_a_process() -> None:
    first = catalog.catalogue_hash()
    catalog.catalogue_hash.cache_clear()
    assert catalog.catalogue_hash() == first
    assert len(first) == 64
