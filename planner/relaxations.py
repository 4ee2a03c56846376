"""Single changes of a request that cannot be met, each tried by solving again: what would give a plan?"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cost_models.job import Job
from cost_models.specs.choices import BACKENDS
from cost_models.specs.cluster import ClusterSpec
from planner.plan import Relaxation
from planner.prediction import rounded

if TYPE_CHECKING:
    from solver.problem import Problem

SHORTEST_SEQUENCE = 512
"""Sequences are halved no further. [tokens]"""
MOST_NODES_FACTOR = 16
"""Nodes are doubled up to this multiple of what the request has."""


@dataclass(frozen=True, slots=True)
class Change:
    """One line of changes of the same kind, mildest first; the first that gives a plan is the answer."""

    kind: str
    steps: tuple[tuple[str, "Problem"], ...]


def try_all(problem: "Problem", report: Callable[[str], None] | None) -> tuple[Relaxation, ...]:
    """Every change, with what came of it."""
    return tuple(_tried(change, report) for change in changes(problem))


def _tried(change: Change, report: Callable[[str], None] | None) -> Relaxation:
    from solver.errors import LimitReached
    from solver.search import solve

    for text, problem in change.steps:
        if report is not None:
            report(f"trying {text}")
        try:
            found = solve(replace(problem, alternatives=0))
        except LimitReached:
            return Relaxation(change=text, verified=False, text="not settled within the limits of the search")
        if found.configuration is not None:
            from planner.explain import short_name

            step = next((o.value for o in found.objectives if o.name == "throughput"), None)
            return Relaxation(
                change=text,
                verified=True,
                text=short_name(found.configuration),
                step_seconds=None if step is None else rounded(step),
            )
    text = "not enough" if len(change.steps) == 1 else "not enough, nor less of it"
    return Relaxation(change=change.steps[-1][0], verified=False, text=text)


def changes(problem: "Problem") -> Iterator[Change]:
    """The changes worth trying, in a fixed order: wishes first, then the machine, then the job."""
    for wish in dict.fromkeys(requirement.text for requirement in problem.requirements):
        kept = tuple(r for r in problem.requirements if r.text != wish)
        yield Change("wish", ((f"drop the wish {wish}", replace(problem, requirements=kept)),))
    if problem.backends != BACKENDS:
        yield Change("backend", (("allow any back end", replace(problem, backends=BACKENDS)),))
    if problem.limits.max_step_seconds is not None:
        limits = replace(problem.limits, max_step_seconds=None)
        yield Change("limit", (("drop max_step_seconds", replace(problem, limits=limits)),))
    yield _more_gpus(problem)
    yield from _shorter(problem)
    yield from _methods(problem)
    yield from _optimizers(problem)


def _with_job(problem: "Problem", **changes: Any) -> "Problem":
    return replace(problem, job=replace(problem.job, **changes))


def with_pool(job: Job, **changes: Any) -> ClusterSpec:
    """The cluster of a job with its one pool changed."""
    return ClusterSpec(pools=(job.pool.model_copy(update=changes),))


def _more_gpus(problem: "Problem") -> Change:
    job, steps, factor = problem.job, [], 2
    limits = replace(problem.limits, max_gpus=None)
    while factor <= MOST_NODES_FACTOR:
        nodes = job.pool.nodes * factor
        text = f"{nodes * job.pool.gpus_per_node} GPUs ({nodes} nodes)"
        steps.append((text, replace(_with_job(problem, cluster=with_pool(job, nodes=nodes)), limits=limits)))
        factor *= 2
    return Change("gpus", tuple(steps))


def _shorter(problem: "Problem") -> Iterator[Change]:
    training, steps = problem.job.training, []
    length = training.sequence_length // 2
    while length >= SHORTEST_SEQUENCE:
        shorter = training.model_copy(update={"sequence_length": length})
        steps.append((f"sequence_length {length}", _with_job(problem, training=shorter)))
        length //= 2
    if steps:
        yield Change("sequence", tuple(steps))


def _methods(problem: "Problem") -> Iterator[Change]:
    training = problem.job.training
    weaker = {"full": ("lora", "qlora"), "lora": ("qlora",), "qlora": ()}[training.method]
    for method in weaker:
        changed = training.model_copy(update={"method": method})
        yield Change("method", ((f"method {method}", _with_job(problem, training=changed)),))


def _optimizers(problem: "Problem") -> Iterator[Change]:
    training = problem.job.training
    for optimizer in ("adamw-8bit", "sgd"):
        if training.optimizer not in (optimizer, "sgd"):
            changed = training.model_copy(update={"optimizer": optimizer})
            yield Change("optimizer", ((f"optimizer {optimizer}", _with_job(problem, training=changed)),))
