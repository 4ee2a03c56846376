"""`meshwright-exec probe`: start the measuring processes, write what they found as a pool."""

import hashlib
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any, Final, TextIO

import yaml

from cost_models.specs.base import Spec
from executor import environment
from executor.caps import check_size
from executor.client import post
from executor.device import devices_here
from executor.errors import PlanRefused, ProbeFailed
from executor.files import check_writable, said, write_text
from executor.launch import Nodes, cpu_environment, require_packages, torchrun_arguments
from executor.probe.node import Node, read_node
from executor.probe.pool import pool_of
from executor.probe.worker import Figures
from executor.processes import run_group

NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,199}")
"""Of a device or cluster, as the service takes it."""


class Probe(Spec):
    """A node, its measured figures, and the pool that a request names."""

    node: Node
    figures: Figures
    pool: dict[str, Any]


def probe(processes: int, *, name: str, memory_bytes: int | None, output: TextIO) -> Probe:
    """Measure with `processes` processes.

    Raises:
        ProbeFailed: they ended badly, or the node has fewer GPUs.
    """
    require_packages("torch")
    node = read_node()
    busy = os.getloadavg()[0]
    if busy > node.cores / 2:
        note = f"{busy:.1f} processes were running on {node.cores} cores before the measurement: rates are too low"
        node = node.model_copy(update={"notes": (*node.notes, note)})
    gpu = devices_here().gpu
    if gpu and node.gpus and len(node.gpus) < processes:
        raise ProbeFailed(f"{processes} processes were asked for, this node has {len(node.gpus)} GPU(s)")
    with tempfile.TemporaryDirectory(prefix="meshwright-probe-") as folder:
        found = Path(folder) / "figures.json"
        added = {"PYTHONPATH": environment.python_path(), **({} if gpu else cpu_environment(processes))}
        # Freed blocks stay: page faults would be measured with every product.
        added = {key: value for key, value in added.items() if not key.startswith("MALLOC_")}
        command = [sys.executable, "-m", "executor.torchrun", *torchrun_arguments(processes, Nodes())]
        status = run_group(
            [*command, "-m", "executor.probe.worker", str(found)],
            environment.child_environment(added=added),
            Path.cwd(),
            output,
        )
        if status or not found.is_file():
            raise ProbeFailed(f"the measuring processes ended with status {status}; their output is above")
        figures = Figures.model_validate_json(found.read_bytes())
    return Probe(node=node, figures=figures, pool=pool_of(node, figures, name=name, memory_bytes=memory_bytes))


def check_asked(*, names: tuple[str, ...], memory_bytes: int | None, processes: int, out: Path) -> None:
    """Refuse before anything is measured what would be refused after it.

    Raises:
        PlanRefused: a name that the service does not take, memory that the node does not have, no place for the file.
    """
    for name in names:
        if not NAME.fullmatch(name):
            raise PlanRefused(f"{name!r} is no name of a device or cluster: up to 200 of a-z, 0-9, '.', '_' and '-', "
                              "beginning with a letter or digit")  # fmt: skip
    if memory_bytes is not None:
        check_size("--memory", memory_bytes, processes)
    check_writable(out)


def default_name() -> str:
    """Of the device."""
    return "gpu-probe" if read_node().gpus else "cpu-probe"


def default_processes() -> int:
    """A process for each GPU, else two: the smallest cluster."""
    return len(read_node().gpus) or min(2, len(os.sched_getaffinity(0)))


def write_pool(probe_: Probe, path: Path) -> Path:
    """The file that `cluster: {device: PATH}` reads.

    Raises:
        ProbeFailed: it cannot be written.
    """
    head = f"# Measured by meshwright-exec probe on {probe_.node.hostname}.\n"
    try:
        return write_text(path, head + yaml.safe_dump(probe_.pool, sort_keys=False, width=110))
    except OSError as error:
        raise ProbeFailed(f"--out {path} could not be written: {said(error)}; the figures are above") from None


def register(probe_: Probe, service: str, *, device: str, cluster: str) -> None:
    """Name the node's device, with its links, at the service, and the cluster of this node: requests may then say
    `device: DEVICE` for a pool, or `cluster: CLUSTER`.

    Raises:
        ServiceAway: no answer.
        ServiceRefused: a name is taken, or the service takes no such device.
    """
    nodes: dict[str, dict[str, Any]] = {
        "/v1/devices": {"name": device, **probe_.pool},
        "/v1/clusters": {"name": cluster, "pools": [{"device": device}]},
    }
    measured = json.dumps(probe_.pool, sort_keys=True)
    for path, body in nodes.items():
        # The same node measured anew is another one, under whatever name.
        key = hashlib.sha256(f"{path} {body['name']} {measured}".encode()).hexdigest()
        post(service, path, body, idempotency_key=key)
