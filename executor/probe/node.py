"""What a node has, as its kernel and its GPU driver tell."""

import contextlib
import os
import platform
import shutil
from pathlib import Path
from typing import Any

from cost_models.specs.base import Spec


class Disk(Spec):
    """A mounted file system."""

    path: str
    total_bytes: int
    free_bytes: int


class Gpu(Spec):
    """One GPU as NVML tells."""

    name: str
    memory_bytes: int
    driver: str
    pcie_generation: int | None
    pcie_width: int | None
    nvlinks: int
    """Active NVLink ports."""


class Node(Spec):
    """One node."""

    hostname: str
    cpu: str
    cores: int
    """That this process may run on."""
    memory_bytes: int
    available_bytes: int
    disks: tuple[Disk, ...]
    gpus: tuple[Gpu, ...]
    notes: tuple[str, ...] = ()


def read_node(root: Path = Path("/")) -> Node:
    """This node."""
    memory = read_memory(root)
    gpus, notes = read_gpus()
    return Node(
        hostname=platform.node(),
        cpu=_cpu_model(root),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=memory["MemTotal"],
        available_bytes=memory["MemAvailable"],
        disks=tuple(_disk(path) for path in dict.fromkeys((Path("/"), Path.cwd())) if path.exists()),
        gpus=gpus,
        notes=notes,
    )


def _disk(path: Path) -> Disk:
    usage = shutil.disk_usage(path)
    return Disk(path=str(path), total_bytes=usage.total, free_bytes=usage.free)


def read_memory(root: Path = Path("/")) -> dict[str, int]:
    """/proc/meminfo. [bytes]"""
    found = {}
    for line in (root / "proc/meminfo").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        found[name] = int(value.split()[0]) * 1024
    return found


def _cpu_model(root: Path) -> str:
    lines = (root / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())


def read_gpus() -> tuple[tuple[Gpu, ...], tuple[str, ...]]:
    """The GPUs through nvidia-ml-py, and why there are none where the driver says otherwise."""
    try:
        import pynvml
    except ImportError:
        present = Path("/dev/nvidiactl").exists()
        return (), ("GPUs were not read: install nvidia-ml-py",) if present else ()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return (), (f"no GPU was read: {error}",)
    try:
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
        count = pynvml.nvmlDeviceGetCount()
        return tuple(_gpu(pynvml, pynvml.nvmlDeviceGetHandleByIndex(i), driver) for i in range(count)), ()
    finally:
        pynvml.nvmlShutdown()


def _gpu(nvml: Any, handle: Any, driver: str) -> Gpu:
    return Gpu(
        name=_text(nvml.nvmlDeviceGetName(handle)),
        memory_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
        driver=driver,
        pcie_generation=_or_none(nvml, nvml.nvmlDeviceGetMaxPcieLinkGeneration, handle),
        pcie_width=_or_none(nvml, nvml.nvmlDeviceGetMaxPcieLinkWidth, handle),
        nvlinks=_nvlinks(nvml, handle),
    )


def _nvlinks(nvml: Any, handle: Any) -> int:
    active = 0
    for link in range(int(nvml.NVML_NVLINK_MAX_LINKS)):
        with contextlib.suppress(nvml.NVMLError):
            active += int(nvml.nvmlDeviceGetNvLinkState(handle, link))
    return active


def _or_none(nvml: Any, ask: Any, handle: Any) -> int | None:
    try:
        return int(ask(handle))
    except nvml.NVMLError:
        return None


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
