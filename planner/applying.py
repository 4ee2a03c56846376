"""Applying a relaxation: the `KEY=VALUE`s that make the change in a request, as `--set` takes them."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from cost_models.specs.choices import COMPRESSIONS
from planner.constraints import OFFLOADS

if TYPE_CHECKING:
    from solver.problem import Problem
    from solver.relaxations import Relaxation

SWITCHED: Final[Mapping[str, tuple[str, ...]]] = {
    "offload": ("constraints.offload=allow", *(f"constraints.{name}=null" for name in OFFLOADS)),
    "recompute": ("constraints.recompute=null", "constraints.recompute_interval=null"),
    "optimizer": ("training.optimizer=adamw-8bit",),
    "lora": ("training.method=lora",),
    "qlora": ("training.method=qlora",),
    "gradient_compression": (f"constraints.gradient_compression=[{', '.join(COMPRESSIONS)}]",),
    "backend": ("backend=any",),
}
"""Of the levers that are moved or not."""
POOL: Final = "cluster.pools.0"


def settings_of(problem: "Problem", change: "Relaxation") -> tuple[str, ...]:
    """How a person makes a change that was found to work; nothing where a cluster has several pools to change."""
    if change.settings or not change.feasible or len(problem.job.cluster.pools) > 1:
        return change.settings
    if change.steps:
        moves = (_move(problem, lever, units) for lever, units in change.steps)
        return tuple(setting for move in moves for setting in move)
    if change.lever == "larger_batch":
        return (f"training.global_batch_size={change.value}",)
    if change.lever == "fewer_gpus":
        return (f"constraints.max_gpus={change.value}",)
    return ("constraints.offload=allow",) if change.change.startswith("without offload:") else (_dropped(change.lever),)


def _dropped(wish: str) -> str:
    return f"constraints.{wish}=null"


def _move(problem: "Problem", lever: str, units: int) -> tuple[str, ...]:
    from solver.levers import NUMBERS

    if lever in SWITCHED:
        return SWITCHED[lever]
    number = next(known for known in NUMBERS if known.name == lever)
    if lever == "gpus":
        return _gpus(problem, units)
    keys: Mapping[str, str] = {
        "sequence_length": "training.sequence_length",
        "global_batch_size": "training.global_batch_size",
        "device_memory": f"{POOL}.usable_memory",
        "host_memory": f"{POOL}.host_memory",
    }
    return (f"{keys[lever]}={number.value(problem, units)}",)


def _gpus(problem: "Problem", units: int) -> tuple[str, ...]:
    """The nodes and what is in them; a limit on the number of devices goes."""
    from solver.levers import NUMBERS

    at: Callable[[Problem, int], Problem | None] = next(known for known in NUMBERS if known.name == "gpus").at
    grown = at(problem, units)
    assert grown is not None
    pool = grown.job.pool
    limits = ("constraints.max_gpus=null",) if problem.limits.max_gpus is not None else ()
    return (f"{POOL}.nodes={pool.nodes}", f"{POOL}.gpus_per_node={pool.gpus_per_node}", *limits)
