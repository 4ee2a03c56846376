"""A plan runs on the devices that it was made for, or is refused with the difference."""

from pathlib import Path

import pytest

from executor.device import NodeDevices, check_device, devices_here
from executor.errors import PlanRefused
from planner.plan import Plan
from tests.unit.executor.plans import feasible, question

A100, H100 = "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"


def node(root: Path, *models: str) -> Path:
    """The driver's files of a node with these GPUs."""
    (root / "dev").mkdir()
    (root / "dev/nvidiactl").touch()
    for index, model in enumerate(models):
        folder = root / f"proc/driver/nvidia/gpus/0000:0{index}:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"Model: \t\t {model}\nIRQ: 1\n", encoding="utf-8")
    return root


def made_for(device: str, gpus: int = 2) -> Plan:
    return feasible(request=question(device, gpus))


@pytest.fixture(autouse=True)
def nothing_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "DS_ACCELERATOR"):
        monkeypatch.delenv(name, raising=False)


def test_a_node_without_a_driver_has_no_gpu(tmp_path: Path) -> None:
    assert devices_here(tmp_path) == NodeDevices(gpu=False)


def test_gpus_are_named_as_the_driver_names_them(tmp_path: Path) -> None:
    assert devices_here(node(tmp_path, A100, A100)) == NodeDevices(gpu=True, names=(A100, A100))


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("", NodeDevices(gpu=False)),
        ("-1", NodeDevices(gpu=False)),
        ("1", NodeDevices(gpu=True, names=(H100,))),
        ("GPU-8d0a,GPU-77f1", NodeDevices(gpu=True)),
    ],
)
def test_hidden_gpus_do_not_count(
    visible: str, expected: NodeDevices, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert devices_here(node(tmp_path, A100, H100)) == expected


@pytest.mark.parametrize(
    ("device", "here", "message"),
    [
        ("cpu", NodeDevices(gpu=True, names=(A100, A100)), f"for the device cpu, this node has 2 x {A100}"),
        ("a100-sxm-80gb", NodeDevices(gpu=False), "for 2 x a100-sxm-80gb a node, this node has no GPU"),
        ("a100-sxm-80gb", NodeDevices(gpu=True, names=(H100, H100)), f"has 2 x {H100} (h100-sxm-80gb)"),
        ("a100-sxm-80gb", NodeDevices(gpu=True, names=(A100,)), f"starts 2 processes a node, this node has 1 x {A100}"),
    ],
)
def test_a_plan_for_other_devices_is_refused(device: str, here: NodeDevices, message: str) -> None:
    with pytest.raises(PlanRefused) as refused:
        check_device(made_for(device), 2, here)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("device", "here"),
    [
        ("cpu", NodeDevices(gpu=False)),
        ("a100-sxm-80gb", NodeDevices(gpu=True, names=(A100, A100))),
        ("a100-sxm-80gb", NodeDevices(gpu=True, names=(A100,) * 8)),
    ],
)
def test_a_plan_for_these_devices_runs(device: str, here: NodeDevices) -> None:
    assert check_device(made_for(device), 2, here) == ()


@pytest.mark.parametrize("here", [NodeDevices(gpu=True), NodeDevices(gpu=True, names=("NVIDIA X999",) * 2)])
def test_what_cannot_be_checked_is_said(here: NodeDevices) -> None:
    (note,) = check_device(made_for("a100-sxm-80gb"), 2, here)
    assert "could not be checked" in note
