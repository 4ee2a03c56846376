"""What this node computes with, against what the plan was made for. Loads neither torch nor the driver's library."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cost_models import catalog
from cost_models.errors import UnknownName
from cost_models.specs.cluster import DeviceSpec
from cost_models.specs.configuration import Configuration
from executor.errors import PlanRefused
from planner.plan import Plan

CPU_PRECISIONS: Final = ("bf16", "fp32")
_DRIVERS: Final = ("dev/nvidiactl", "dev/kfd")
"""Control devices of the NVIDIA and AMD drivers."""
_MODELS: Final = "proc/driver/nvidia/gpus/*/information"
"""One file per GPU; its line `Model:` holds the name that torch shows."""


@dataclass(frozen=True, slots=True)
class NodeDevices:
    """The GPUs that a process started here would see."""

    gpu: bool
    names: tuple[str, ...] = ()
    """One per GPU; empty where the driver does not tell."""

    def __str__(self) -> str:
        """As a person would say it."""
        if not self.gpu:
            return "no GPU"
        return ", ".join(f"{self.names.count(n)} x {n}" for n in dict.fromkeys(self.names)) or "GPUs of unknown name"


def devices_here(root: Path = Path("/")) -> NodeDevices:
    """GPUs as the driver lists them, less those that CUDA_VISIBLE_DEVICES hides."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    hidden = visible is not None and (not visible.strip() or visible.strip().startswith("-1"))
    forced = os.environ.get("DS_ACCELERATOR", "").lower() == "cpu"
    if hidden or forced or not any((root / driver).exists() for driver in _DRIVERS):
        return NodeDevices(gpu=False)
    names = tuple(name for path in sorted(root.glob(_MODELS)) if (name := _model(path)))
    if visible is not None:
        names = _chosen(names, [part.strip() for part in visible.split(",")])
    return NodeDevices(gpu=True, names=names)


def _model(path: Path) -> str | None:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("Model:")), None)


def _chosen(names: tuple[str, ...], parts: list[str]) -> tuple[str, ...]:
    """The GPUs listed by index; by UUID only their number is known, which tells the name where all are alike."""
    if all(part.isdigit() and int(part) < len(names) for part in parts):
        return tuple(names[int(part)] for part in parts)
    return (names[0],) * len(parts) if len(set(names)) == 1 else ()


def check_device(plan: Plan, processes: int, here: NodeDevices | None = None) -> tuple[str, ...]:
    """What could not be checked, as notes; `processes` are those of this node.

    Raises:
        PlanRefused: this node has other devices than the plan was made for, or too few.
    """
    here = devices_here() if here is None else here
    pool = plan.pool
    planned = pool.device
    if planned.kind == "cpu" and here.gpu:
        raise PlanRefused(
            f"the plan is for the device {planned.name}, this node has {here}: plan for it, "
            "or set CUDA_VISIBLE_DEVICES to nothing to train on the CPU"
        )
    if planned.kind == "gpu" and not here.gpu:
        raise PlanRefused(f"the plan is for {pool.gpus_per_node} x {planned.name} a node, this node has {here}")
    if not here.names:
        return () if planned.kind == "cpu" else (f"whether this node's GPUs are {planned.name} could not be checked",)
    if len(here.names) < processes:
        raise PlanRefused(f"the plan starts {processes} processes a node, this node has {here}")
    notes = []
    for name in dict.fromkeys(here.names):
        known = _known(name)
        if known and planned.name not in {spec.name for spec in known}:
            if any(spec.name == planned.name for spec in catalog.devices()):
                found = " or ".join(spec.name for spec in known)
                raise PlanRefused(f"the plan is for {planned.name}, this node has {here} ({found})")
            notes.append(f"whether this node's {name} is the plan's {planned.name} could not be checked")
        elif not known and catalog.spelling(name) != catalog.spelling(planned.name):
            notes.append(f"whether this node's {name} is the plan's {planned.name} could not be checked")
    return tuple(notes)


def check_precision(configuration: Configuration) -> None:
    """Hold a precision against what processes on a CPU compute in, whatever the back end.

    Raises:
        PlanRefused: fp16, for which CPUs have no products of matrices worth running, or one narrower still.
    """
    if configuration.precision not in CPU_PRECISIONS:
        raise PlanRefused(
            f"the plan's precision is {configuration.precision}, this node trains on its CPU in "
            f"{' or '.join(CPU_PRECISIONS)}: plan one of them"
        )


def _known(name: str) -> tuple[DeviceSpec, ...]:
    """Every device of the catalogue that the driver's name may mean."""
    try:
        return catalog.device_candidates(name)
    except UnknownName:
        return ()
