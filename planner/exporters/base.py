"""What every exporter is: a pure function from a plan to texts, that says first what it cannot say."""

import hashlib
from dataclasses import dataclass, field
from typing import Any, Protocol

from packaging.specifiers import SpecifierSet

from planner.edited import EDITED
from planner.plan import Plan
from planner.version import __version__


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """What an artifact needs beside the plan."""

    nodes: int | None = None
    """None: as many as the plan was made for."""
    gpus_per_node: int | None = None
    learning_rate: float | None = None
    """None: the artifact leaves it to the training script."""
    allow_lossy: bool = False
    """Write what can be said, with each loss as a comment, instead of refusing."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Options of third-party exporters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """One file to be: nothing is written by an exporter itself."""

    path: str
    media_type: str
    text: str


class Exporter(Protocol):
    """One target."""

    name: str
    versions: SpecifierSet
    """Releases of the framework that the text is valid for."""

    def unsupported(self, plan: Plan) -> tuple[str, ...]:
        """What the target cannot say of this plan; empty when it can say everything."""
        ...

    def export(self, plan: Plan, options: ExportOptions) -> tuple[Artifact, ...]:
        """The artifacts.

        Raises:
            ExportUnsupported: something would be lost and the options do not allow it.
        """
        ...


def job_losses(plan: Plan) -> list[str]:
    """Options of the training job that the plan was priced with and that only the training script can follow."""
    training = plan.request.training
    losses = []
    if training.state_precision != "auto":
        losses.append(f"state_precision {training.state_precision}: the script chooses the dtype of its weights")
    if training.optimizer_in_backward:
        losses.append("optimizer_in_backward: the script runs the optimizer")
    if training.optimizer_paged:
        losses.append("optimizer_paged: the script makes the optimizer")
    if training.offload_to == "nvme":
        losses.append("offload_to nvme: the plan knows no path to the drive")
    return losses


def plan_hash(plan: Plan) -> str:
    """SHA-256 of the plan without its envelope, in hexadecimal."""
    return hashlib.sha256(plan.reproducible_json().encode()).hexdigest()


def header(plan: Plan, target: str) -> dict[str, str]:
    """Where an artifact is from and how to make it again."""
    about = {
        "generator": f"meshwright {__version__}",
        "plan": plan.envelope.id,
        "plan_sha256": plan_hash(plan),
        "regenerate": f"meshwright export plan.json --to {target}",
    }
    return about | ({"edited": EDITED} if plan.edited else {})


def shape(plan: Plan, options: ExportOptions) -> tuple[int, int]:
    """Nodes and processes per node: the options', else those of the cluster that the plan was made for.

    Raises:
        SpecError: they do not multiply to the world size of the plan.
    """
    from cost_models.errors import BrokenRule

    assert plan.configuration is not None
    world, largest = plan.configuration.world_size, plan.pool.gpus_per_node
    planned = max(n for n in range(1, min(world, largest) + 1) if world % n == 0)
    per_node = options.gpus_per_node or (world // options.nodes if options.nodes else planned)
    nodes = options.nodes or max(1, world // max(per_node, 1))
    if nodes * per_node != world:
        raise BrokenRule(f"nodes {nodes} x gpus_per_node {per_node} is {nodes * per_node} but the plan uses {world}")
    return nodes, per_node
