"""A launch as data: what would run, with which files and environment. Building one starts and writes nothing."""

import base64
import hashlib
import importlib.util
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from cost_models.specs.configuration import Configuration
from executor import environment, peaks
from executor.backends.choice import described, wrapper
from executor.errors import MissingExtra, PlanInfeasible, PlanRefused
from executor.hints import Thresholds
from executor.instrument import DEFAULT_TIMED_STEPS, DEFAULT_WARMUP_STEPS
from executor.measured import installed_releases
from executor.overrides import reasons
from planner.plan import Plan

DEEPSPEED_FILE = "deepspeed.json"
CONFIG_PLACEHOLDER = "{deepspeed_config}"
"""In a script's arguments: stands for the path of the DeepSpeed configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """Where processes start. One node unless told otherwise."""

    count: int = 1
    rank: int = 0
    processes: int | None = None
    """On each node; default: the plan's world size over the nodes."""
    rendezvous: str | None = None
    """host:port of node 0, needed for several nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measuring:
    """Steps of the measurement."""

    warmup_steps: int = DEFAULT_WARMUP_STEPS
    timed_steps: int = DEFAULT_TIMED_STEPS


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    """What the user says beside the plan and the script."""

    directory: Path
    starter: Literal["torchrun", "deepspeed"] = "torchrun"
    """What starts the processes of a node."""
    nodes: Nodes = field(default_factory=Nodes)
    measuring: Measuring = field(default_factory=Measuring)
    passed: tuple[str, ...] = ()
    """Names of further environment variables the training inherits."""
    limits: Thresholds = field(default_factory=Thresholds)
    """From where something is worth a hint."""
    memory_cap: int | None = None
    """What each CPU process may hold. [bytes]"""
    recovery: Mapping[str, str] = field(default_factory=dict)
    """Environment of a run that is watched and continued."""

    def __post_init__(self) -> None:
        """Refuse names that no variable has.

        Raises:
            PlanRefused: one in `passed`.
        """
        environment.check_names(self.passed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A training script and its arguments."""

    path: Path
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One launch on this node."""

    argv: tuple[str, ...]
    environment: dict[str, str] = field(repr=False)
    added: dict[str, str]
    """The part of the environment that is not inherited."""
    cwd: Path
    directory: Path
    """Where its files and reports go."""
    files: dict[str, str]
    """Name -> text, to be written into `directory`."""
    wrapping: tuple[str, ...] = ()
    """What wraps the model, outermost last."""
    notes: tuple[str, ...] = ()
    """What is to be said before it starts."""

    @property
    def reports(self) -> Path:
        """Directory of the per-process reports."""
        return self.directory / "reports"

    def to_dict(self) -> dict[str, Any]:
        """What would run, without what is inherited."""
        return {
            "argv": list(self.argv),
            "wrapping": list(self.wrapping),
            "environment": self.added,
            "directory": str(self.directory),
            "files": self.files,
            "notes": list(self.notes),
        }


def configuration_to_run(plan: Plan) -> Configuration:
    """The plan's configuration, if this release can launch it.

    Raises:
        PlanInfeasible: the plan has none.
        PlanRefused: no launcher for its back end.
    """
    if plan.configuration is None:
        raise PlanInfeasible(f"the plan's status is {plan.status}: there is nothing to run{reasons(plan)}")
    wrapper(plan.configuration)
    return plan.configuration


def require_packages(*names: str) -> None:
    """Check that packages are installed, without importing them.

    Raises:
        MissingExtra: naming the first that is not.
    """
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise MissingExtra(name)


def processes_per_node(configuration: Configuration, nodes: Nodes) -> int:
    """Processes of each node.

    Raises:
        PlanRefused: nodes x processes is not the plan's world size, or a rendezvous is missing.
    """
    world = configuration.world_size
    each = world // nodes.count if nodes.processes is None else nodes.processes
    if each * nodes.count != world:
        started = f"{nodes.count} node(s)" + ("" if nodes.processes is None else f" x {each} processes")
        raise PlanRefused(f"the plan's world size is {world}, which {started} cannot make")
    if not 0 <= nodes.rank < nodes.count:
        raise PlanRefused(f"node rank {nodes.rank} is not below the {nodes.count} node(s)")
    if nodes.count > 1 and nodes.rendezvous is None:
        raise PlanRefused(f"{nodes.count} nodes need --rendezvous host:port of node 0")
    return each


def torchrun_arguments(each: int, nodes: Nodes) -> tuple[str, ...]:
    """Arguments of torchrun before the script."""
    if nodes.count == 1:
        return ("--standalone", "--nproc-per-node", str(each))
    return (
        *("--nnodes", str(nodes.count), "--node-rank", str(nodes.rank), "--nproc-per-node", str(each)),
        *("--rdzv-backend", "c10d", "--rdzv-id", "meshwright", "--rdzv-endpoint", str(nodes.rendezvous)),
    )


def deepspeed_arguments(each: int, nodes: Nodes) -> tuple[str, ...]:
    """Arguments of DeepSpeed's launcher before the script; the script finds its rank in its environment.

    Raises:
        PlanRefused: a rendezvous that is no host and port.
    """
    world = {f"node-{node}": list(range(each)) for node in range(nodes.count)}
    told = base64.urlsafe_b64encode(json.dumps(world).encode()).decode()
    words = (f"--world_info={told}", f"--node_rank={nodes.rank}", "--no_local_rank")
    if nodes.count == 1:
        return words
    host, _, port = str(nodes.rendezvous).rpartition(":")
    if not host or not port.isdecimal():
        raise PlanRefused(f"--rendezvous {nodes.rendezvous}: give HOST:PORT of node 0")
    return (*words, f"--master_addr={host}", f"--master_port={port}")


STARTERS: Final = {
    "torchrun": ("executor.torchrun", torchrun_arguments),
    "deepspeed": ("executor.deepspeed_launcher", deepspeed_arguments),
}
"""Module that is run, and its arguments before the script."""


def prepare(plan: Plan, deepspeed_config: str | None, script: Script, options: LaunchOptions, *, cpu: bool) -> Launch:
    """The launch of `script` under `plan`; `deepspeed_config` is None for other back ends.

    Raises:
        PlanRefused: it does not match these nodes, or the script is not there.
    """
    configuration = configuration_to_run(plan)
    each = processes_per_node(configuration, options.nodes)
    if not script.path.is_file():
        raise PlanRefused(f"{script.path}: no such training script")
    directory = options.directory
    config = directory / DEEPSPEED_FILE
    starter, arguments = STARTERS[options.starter]
    if deepspeed_config is None and any(CONFIG_PLACEHOLDER in argument for argument in script.arguments):
        raise PlanRefused(f"{CONFIG_PLACEHOLDER} stands for nothing: the back end is {configuration.backend.name}")
    written = {} if deepspeed_config is None else {environment.DEEPSPEED_CONFIG: str(config)}
    added = {
        **_recommended(plan),
        environment.PLAN: str(directory / "plan.json"),
        **written,
        environment.REPORT: str(directory / "reports"),
        environment.WARMUP_STEPS: str(options.measuring.warmup_steps),
        environment.TIMED_STEPS: str(options.measuring.timed_steps),
        **({} if options.memory_cap is None else {environment.MEMORY_CAP: str(options.memory_cap)}),
        "KINETO_LOG_LEVEL": "6",  # the profiler of one step says nothing below fatal errors
        **options.recovery,
        "PYTHONPATH": environment.python_path(),
        **(cpu_environment(each) if cpu else {}),
    }
    return Launch(
        argv=(
            *(sys.executable, "-m", starter),
            *arguments(each, options.nodes),
            str(script.path.resolve()),
            *(argument.replace(CONFIG_PLACEHOLDER, str(config)) for argument in script.arguments),
        ),
        environment=environment.child_environment(passed=options.passed, added=added),
        added=added,
        cwd=Path.cwd(),
        directory=directory,
        files={"plan.json": plan.to_json(), **({DEEPSPEED_FILE: deepspeed_config} if deepspeed_config else {})},
        wrapping=described(configuration),
    )


def _recommended(plan: Plan) -> dict[str, str]:
    """What the plan recommends to set, of the names it may."""
    recommended = plan.recommendations.environment if plan.recommendations else {}
    return {name: value for name, value in recommended.items() if name in environment.RECOMMENDABLE}


def cpu_environment(processes: int) -> dict[str, str]:
    """What processes need to share the cores of a CPU node and to show their memory."""
    threads = max(1, len(os.sched_getaffinity(0)) // processes)
    return {
        "DS_ACCELERATOR": "cpu",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(threads)),
        "TORCH_EXTENSIONS_DIR": os.environ.get("TORCH_EXTENSIONS_DIR") or str(_extensions()),
        **peaks.RETURNING_MALLOC,
    }


def _extensions() -> Path:
    """Where DeepSpeed's compiled operators are kept: one place per environment, whose paths and releases they hold.

    Two environments in one place would compile them anew at every turn.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    made_for = "\n".join([sys.prefix, *(f"{name} {release}" for name, release in installed_releases().items())])
    return cache / "meshwright" / "torch_extensions" / hashlib.sha256(made_for.encode()).hexdigest()[:12]
