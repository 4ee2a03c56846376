"""Levers: what may be changed in a job so that a configuration exists, each as a new problem; nothing is solved."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from cost_models.errors import SpecError
from cost_models.job import Job
from cost_models.specs.choices import COMPRESSIONS, MAINTAINED_BACKENDS
from cost_models.specs.cluster import NodePool
from cost_models.units import gib
from solver.caps import caps
from solver.domains import COMPRESSION_PERMISSIONS
from solver.problem import Problem

GIB: Final = 2**30
HOST_STEP: Final = 8 * GIB
OFFLOADS: Final = frozenset({"optimizer_offload", "parameter_offload", "activation_offload"})
RECOMPUTATION: Final = frozenset({"recompute", "recompute_interval"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """A change that is made or not."""

    name: str
    change: Callable[[Problem], Problem | None]
    """The changed problem; None where the change does not apply."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A number that is moved; `at` is the problem with the number moved by so many units, None where it cannot be."""

    name: str
    at: Callable[[Problem, int], Problem | None]
    text: Callable[[Problem, int], str]
    value: Callable[[Problem, int], int]
    most: Callable[[Problem], int]
    """Units within reach."""
    monotone: bool = True
    """More of it never hurts: when all within reach does not help, nothing less does."""
    trials: Callable[[Problem], Sequence[int]] = lambda problem: ()
    """Units to try first, ascending; twice as many each time where there are none."""
    anywhere: Callable[[Problem], Problem | None] | None = None
    """One problem that has a configuration wherever the number within reach has one."""
    one_pool: bool = False
    """Only of a cluster of equal nodes."""
    room: bool = False
    """It is no more than what a device or node holds: what a configuration needs and takes does not depend on it."""


def _job(problem: Problem, **parts: Any) -> Problem:
    job = problem.job
    changed = Job(
        model=job.model, cluster=parts.get("cluster", job.cluster), training=parts.get("training", job.training)
    )
    return replace(problem, job=changed)


def _training(problem: Problem, **values: Any) -> Problem | None:
    training = problem.job.training
    try:
        return _job(problem, training=type(training).read(training.model_dump() | values))
    except SpecError:
        return None


def _pool(problem: Problem, **values: Any) -> Problem:
    return _every_pool(problem, lambda _: values)


def _every_pool(problem: Problem, changes: Callable[[NodePool], dict[str, Any]]) -> Problem:
    pools = tuple(pool.model_copy(update=changes(pool)) for pool in problem.job.cluster.pools)
    return _job(problem, cluster=problem.job.cluster.model_copy(update={"pools": pools}))


def _method(name: str) -> Callable[[Problem], Problem | None]:
    def change(problem: Problem) -> Problem | None:
        now = problem.job.training.method
        if now in (name, "qlora") or (name == "lora" and now != "full"):
            return None
        return _training(problem, method=name)

    return change


def _optimizer(problem: Problem) -> Problem | None:
    return None if problem.job.training.optimizer == "adamw-8bit" else _training(problem, optimizer="adamw-8bit")


def _offload(problem: Problem) -> Problem | None:
    kept = tuple(r for r in problem.requirements if not (r.key in OFFLOADS and not r.admits(True)))
    return None if len(kept) == len(problem.requirements) else replace(problem, requirements=kept)


def _recompute(problem: Problem) -> Problem | None:
    kept = tuple(r for r in problem.requirements if r.key not in RECOMPUTATION)
    return None if len(kept) == len(problem.requirements) else replace(problem, requirements=kept)


def _compression(problem: Problem) -> Problem | None:
    offered = problem.open_domains["gradient_compression"]
    kept = tuple(r for r in problem.requirements if r.key != "gradient_compression")
    if offered == COMPRESSIONS and len(kept) == len(problem.requirements):
        return None
    domains = problem.domains.with_values(gradient_compression=COMPRESSION_PERMISSIONS["lossy"])
    return replace(problem, domains=domains, requirements=kept)


def _any_backend(problem: Problem) -> Problem | None:
    kept = tuple(r for r in problem.requirements if r.key != "backend")
    everything = MAINTAINED_BACKENDS
    if set(everything) <= set(problem.backends) and len(kept) == len(problem.requirements):
        return None
    return replace(problem, backends=everything, requirements=kept)


def _more_gpus(problem: Problem, units: int) -> Problem | None:
    """More devices in a single node up to 8, else more nodes."""
    pool = problem.job.pool
    inside = max(8 - pool.gpus_per_node, 0) if pool.nodes == 1 else 0
    if units <= inside:
        grown = _pool(problem, gpus_per_node=pool.gpus_per_node + units)
    else:
        grown = _pool(problem, gpus_per_node=pool.gpus_per_node + inside, nodes=pool.nodes + units - inside)
    domains = {k: v for k, v in grown.domains.values.items() if k != "gpus"}
    return replace(grown, domains=type(grown.domains)(domains), limits=replace(grown.limits, max_gpus=None))


def _gpus(problem: Problem, units: int) -> int:
    grown = _more_gpus(problem, units)
    assert grown is not None
    return grown.job.cluster.gpus


def _doubled_gpus(problem: Problem) -> tuple[int, ...]:
    """The units that double the devices: splits of a batch rarely divide over other numbers."""
    counts = {_gpus(problem, units): units for units in range(1, _most_gpus(problem) + 1)}
    doubled = (problem.job.cluster.gpus * 2**k for k in range(1, 12))
    return tuple(counts[count] for count in doubled if count in counts)


def _most_gpus(problem: Problem) -> int:
    return max(64, 4 * problem.job.pool.nodes)


def _length_unit(problem: Problem) -> int:
    return 256 if problem.job.training.sequence_length % 256 == 0 else 64


def _shorter(problem: Problem, units: int) -> Problem | None:
    length = problem.job.training.sequence_length - units * _length_unit(problem)
    return _training(problem, sequence_length=length) if length > 0 else None


def _smaller_batch(problem: Problem, units: int) -> Problem | None:
    batch = problem.job.training.batch_range.max - units
    return _training(problem, global_batch_size=batch) if batch > 0 else None


def _any_smaller_batch(problem: Problem) -> Problem | None:
    """Every smaller batch at once, in the least micro-batches on offer, for questions of memory alone: larger ones take
    more of it, but less time.
    """
    if caps(problem).on_time:
        return None
    most, key = problem.job.training.batch_range.max - 1, "micro_batch_size"
    changed = _training(problem, global_batch_size={"min": 1, "max": most}) if most > 0 else None
    offered = problem.resolved_domains[key]
    if changed is None or (offered is None and any(wish.key == key for wish in problem.requirements)):
        return changed
    least = 1 if offered is None else min(int(size) for size in offered)
    return replace(changed, domains=changed.domains.with_values(micro_batch_size=(least,)))


def _batch(problem: Problem, units: int) -> int:
    return problem.job.training.batch_range.max - units


def _usable(problem: Problem, units: int) -> int:
    """Of one device; across pools, of the first one's."""
    return problem.job.cluster.pools[0].device.usable_memory_bytes + units * GIB


def _host(problem: Problem, units: int) -> int:
    return problem.job.cluster.pools[0].host_memory_bytes + HOST_STEP * units


def _device_memory(problem: Problem, units: int) -> Problem:
    def more(pool: NodePool) -> dict[str, Any]:
        return {"device": pool.device.with_usable_memory(pool.device.usable_memory_bytes + units * GIB)}

    return _every_pool(problem, more)


def _host_memory(problem: Problem, units: int) -> Problem:
    return _every_pool(problem, lambda pool: {"host_memory_bytes": pool.host_memory_bytes + HOST_STEP * units})


def _memory_text(problem: Problem, sizes: tuple[int, int], what: str, step: str) -> str:
    """Of one pool what it should have; of several how much more each of them."""
    more, now = sizes
    if len(problem.job.cluster.pools) > 1:
        return f"{gib(more - now)} more {what} in every pool (in steps of {step})"
    return f"{gib(more)} of {what} (instead of {gib(now)}, in steps of {step})"


SWITCHES: Final = (
    Switch(name="offload", change=_offload, text="offload: allow"),
    Switch(name="recompute", change=_recompute, text="recompute: allow"),
    Switch(name="optimizer", change=_optimizer, text="training.optimizer: adamw-8bit"),
    Switch(name="lora", change=_method("lora"), text="training.method: lora"),
    Switch(name="qlora", change=_method("qlora"), text="training.method: qlora"),
    Switch(name="gradient_compression", change=_compression, text="gradient_compression: lossy"),
    Switch(name="backend", change=_any_backend, text="backend: any"),
)
NUMBERS: Final = (
    Number(
        name="gpus",
        monotone=False,
        one_pool=True,
        trials=_doubled_gpus,
        at=_more_gpus,
        value=_gpus,
        most=_most_gpus,
        text=lambda p, u: f"cluster: {_gpus(p, u)} GPUs (instead of {p.job.cluster.gpus})",
    ),
    Number(
        name="sequence_length",
        at=_shorter,
        value=lambda p, u: p.job.training.sequence_length - u * _length_unit(p),
        most=lambda p: (p.job.training.sequence_length - 1) // _length_unit(p),
        text=lambda p, u: (
            f"training.sequence_length: {p.job.training.sequence_length - u * _length_unit(p)} "
            f"(instead of {p.job.training.sequence_length}, in steps of {_length_unit(p)})"
        ),
    ),
    Number(
        name="global_batch_size",
        monotone=False,
        at=_smaller_batch,
        anywhere=_any_smaller_batch,
        value=_batch,
        most=lambda p: p.job.training.batch_range.max - 1,
        text=lambda p, u: f"training.global_batch_size: {_batch(p, u)} (instead of {_batch(p, 0)})",
    ),
    Number(
        name="device_memory",
        room=True,
        at=_device_memory,
        value=_usable,
        most=lambda p: 512,
        text=lambda p, u: _memory_text(p, (_usable(p, u), _usable(p, 0)), "usable memory per GPU", "1 GiB"),
    ),
    Number(
        name="host_memory",
        room=True,
        at=_host_memory,
        value=_host,
        most=lambda p: 1024,
        text=lambda p, u: _memory_text(p, (_host(p, u), _host(p, 0)), "host memory per node", "8 GiB"),
    ),
)
