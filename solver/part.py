"""A part of one pool: smaller numbers of devices that may be faster than all of them, and when they are asked about.

The batch divides over some numbers of devices better than over others. What it does not divide over must be model
parallel, and a smaller number that leaves less of that may be faster than the whole.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from cost_models.specs.choices import SPARING
from solver.bounds.pools import SLACK, device_ticks
from solver.problem import Problem, device_counts
from solver.rows import Prices
from solver.space import batch_splits, divisors

MANY: Final = 1024
"""Devices beyond which models that use them all are split by powers of two anyway: only odd remainders hold back."""


def whole_by_default(problem: Problem) -> bool:
    """Whether the devices of one pool are all used because nobody asked about fewer."""
    asked = problem.objectives[0] in SPARING or problem.limits.max_gpus is not None or "gpus" in problem.domains.values
    return not asked and len(problem.job.cluster.pools) == 1


def with_parts(problem: Problem) -> Problem:
    """The problem over every number of devices that may have its answer: where the whole has none, `solve` asks these.

    Questions about a problem without a configuration are asked of this one.
    """
    counts = better_divided(problem) if whole_by_default(problem) else ()
    if not counts:
        return problem
    return replace(problem, domains=problem.domains.with_values(gpus=(*counts, problem.job.cluster.gpus)))


def better_divided(problem: Problem) -> tuple[int, ...]:
    """Smaller numbers of devices, ascending, that leave less to model parallelism than any larger one.

    All of them where the batch never divides over the whole.
    """
    gpus, least = problem.job.cluster.gpus, problem.limits.min_gpus or 1
    counts = tuple(n for n in device_counts(problem.job) if least <= n < gpus)
    degrees = data_parallel_degrees(problem)
    shares = [gpus // d for d in degrees if gpus % d == 0]
    if not shares:
        return counts
    if gpus > MANY and any(share & (share - 1) == 0 for share in shares):
        return ()
    return tuple(reversed(list(_improving(counts, degrees, min(shares)))))


def _improving(counts: tuple[int, ...], degrees: tuple[int, ...], share: int) -> Iterator[int]:
    """Descending, each with fewer devices to a data-parallel rank than those before."""
    for count in reversed(counts):
        if share == 1:
            return
        ranks = max((d for d in degrees if count % d == 0), default=0)
        if ranks and count // ranks < share:
            share = count // ranks
            yield count


def data_parallel_degrees(problem: Problem) -> tuple[int, ...]:
    """Degrees on offer that the batch divides into, whatever the devices; ascending."""
    split, offered = batch_splits(problem), problem.resolved_domains["data_parallel"]
    batch, most = problem.job.training.batch_range, problem.job.cluster.gpus
    known = divisors(batch.max) if batch.min == batch.max else range(1, batch.max + 1)
    return tuple(d for d in known if d <= most and (offered is None or d in offered) and split(d))


def worth_asking(problem: Problem, prices: Prices, ticks: float | None) -> tuple[int, ...]:
    """Smaller numbers of devices that may beat a configuration, ascending.

    `ticks`: its step, or where the batch may vary its time for a sequence; None where none was found. No number of
    devices is faster than all of them computing all along.
    """
    counts = better_divided(problem) if whole_by_default(problem) else ()
    if not counts or ticks is None or problem.objectives[0] != "throughput":
        return counts if ticks is None else ()
    each = device_ticks(problem, prices.time)[0]
    batch = problem.job.training.batch_range
    sequences = batch.min if batch.min == batch.max else 1
    return tuple(n for n in counts if each * sequences / n * SLACK <= ticks)
