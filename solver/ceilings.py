"""Micro-batches that no device holds, found by few prices before topologies are looked at.

Where the batch may vary, a structure (degrees) has thousands of micro-batch sizes b, nearly all of them far too large.
With structure and features fixed, nothing that a rank holds at the instants of `GROWING` shrinks as b grows, nor as the
number m of micro-batches grows from two on. So where (b, m) fails the necessary memory test at these instants with the
least m > 1 of the structure, all of its rows with m > 1 and a micro-batch of b or more fail it, too. Rows of a single
micro-batch, which need no gradients beside its own, are asked about apart. Sizes are tried by doubling: what is left is
within twice of what fits, and is tested row by row as ever.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from solver.caps import Caps
from solver.micro_batches import hopeful
from solver.problem import Problem
from solver.rows import Prices
from solver.space import STRUCTURE, BackendSpace, BoolArray

MANY: Final = 100_000
"""Rows from which the question is worth its prices."""


def below_ceilings(
    problem: Problem, prices: Prices, spaces: Sequence[BackendSpace], caps: Caps
) -> tuple[BackendSpace, ...]:
    """The rows without those whose micro-batch no device holds, where the batch may vary and rows are many."""
    if not caps.device_memory or not worth_asking(problem, spaces):
        return tuple(spaces)
    return tuple(_below(problem, prices, space, caps) if space.size else space for space in map(_alive, spaces))


def worth_asking(problem: Problem, spaces: Sequence[BackendSpace]) -> bool:
    """Whether the batch may vary, rows are many, and one pool holds all stages."""
    batch = problem.job.training.batch_range
    many = sum(int(np.count_nonzero(space.legal)) for space in spaces) >= MANY
    return batch.min != batch.max and many and problem.arrangement is None


def _alive(space: BackendSpace) -> BackendSpace:
    """A space without the topologies that have no row left."""
    some = space.legal.any(axis=1)
    return replace(space, topologies={key: c[some] for key, c in space.topologies.items()}, legal=space.legal[some])


def _below(problem: Problem, prices: Prices, space: BackendSpace, caps: Caps) -> BackendSpace:
    """One space: each group of topologies, feature by feature, up to the least micro-batch that fails."""
    t = space.topologies
    steps, size = t["gradient_accumulation_steps"], t["micro_batch_size"]
    changed = np.logical_or.reduce([t[key][1:] != t[key][:-1] for key in STRUCTURE])
    structure = np.concatenate([[0], np.cumsum(changed)])
    # Those of a structure are neighbours by ascending micro-batch: so they are in a stable order of the groups.
    _, group = np.unique(2 * structure + (steps > 1), return_inverse=True)
    order = np.argsort(group, kind="stable")
    first = np.concatenate([[0], 1 + np.nonzero(np.diff(group[order]))[0]])
    asked = np.logical_or.reduceat(space.legal[order], first, axis=0)
    least, largest = np.minimum.reduceat(size[order], first), np.maximum.reduceat(size[order], first)
    probes = {key: column[order][first] for key, column in t.items()}
    probes["gradient_accumulation_steps"] = np.minimum.reduceat(steps[order], first)
    fitting, doublings = asked, np.zeros(asked.shape, dtype=np.int8)
    for k in range(64):
        tried = least << k
        asked = fitting & (tried <= largest)[:, None]
        if not asked.any():
            break
        at = replace(space, topologies=probes | {"micro_batch_size": tried}, legal=asked)
        fits = hopeful(problem, prices, (at,), caps)[0]
        fitting = fitting & (fits | ~asked)
        doublings += fitting
    # A size is at least its group's least doubled so often; small integers, as there is one for every row.
    doubled = (np.frexp(size // least[group])[1] - 1).astype(np.int8)
    kept: BoolArray = space.legal & (doubled[:, None] < doublings[group])
    return _alive(replace(space, legal=kept))
