"""Other splits: where rules leave no way to divide a batch over the devices, a batch or a part of them that divides."""

from collections.abc import Iterator
from dataclasses import replace

from cost_models.arrays import ceil_div
from cost_models.job import Job
from solver.feasibility import feasible_or_none
from solver.problem import Problem
from solver.relaxations import Relaxation


def other_splits(problem: Problem) -> Iterator[Relaxation]:
    """The next batch that gives every device equally many sequences; the largest power of two of devices that works."""
    counts = problem.resolved_domains["gpus"] or ()
    if len(counts) == 1:
        yield from _larger_batch(problem, int(counts[0]))
        yield from _fewer_gpus(problem, int(counts[0]))


def _larger_batch(problem: Problem, gpus: int) -> Iterator[Relaxation]:
    job, asked = problem.job, problem.job.training.batch_range.max
    batch = int(ceil_div(asked, gpus)) * gpus
    if batch == asked:
        return
    training = type(job.training).read(job.training.model_dump() | {"global_batch_size": batch})
    changed = replace(problem, job=Job(model=job.model, cluster=job.cluster, training=training))
    answer = feasible_or_none(changed)
    yield Relaxation(
        lever="larger_batch",
        change=f"training.global_batch_size: {batch} (instead of {asked})",
        feasible=bool(answer),
        value=batch,
        configuration=answer.configuration,
    )


def _fewer_gpus(problem: Problem, gpus: int) -> Iterator[Relaxation]:
    per_node = problem.job.pool.gpus_per_node
    powers = [2**k for k in reversed(range(gpus.bit_length()))]
    for count in (n for n in powers if n < gpus and (n < per_node or n % per_node == 0)):
        answer = feasible_or_none(replace(problem, domains=problem.domains.with_values(gpus=(count,))))
        if answer:
            yield Relaxation(
                lever="fewer_gpus",
                change=f"constraints.max_gpus: {count} (instead of all {gpus})",
                feasible=True,
                value=count,
                configuration=answer.configuration,
            )
            return
