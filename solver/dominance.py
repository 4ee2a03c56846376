"""Reductions of the space that never lose the optimum, each with its argument; tests compare with and without."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from solver.objectives import timed_limits
from solver.problem import Problem
from solver.space import STRUCTURE, BackendSpace, BoolArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruning:
    """Which reductions are on; all of them, unless a test asks what one of them changes."""

    sequence_parallel: bool = True
    """Rows that their twin outdoes by its prices (`twins`)."""
    accumulation: bool = True
    micro_batches: bool = True
    ceilings: bool = True
    """Micro-batches that no device holds (`ceilings`)."""
    topology_floor: bool = True
    necessary_memory: bool = True
    first_bound: bool = True
    holding: bool = True
    communication: bool = True
    """Rows that cannot keep a limit on communication (`bounds.communication`)."""


def accumulation_rows(problem: Problem, space: BackendSpace, legal: BoolArray) -> BoolArray:
    """Where the batch may vary, drop rows that differ from a legal one only by fewer of many micro-batches.

    Memory depends on the number m of micro-batches only through those in flight, and on whether there are several; it
    is the same for all m >= max(p, 2), with interleaving for all m >= 2 p. The step per sequence,
    ((m - 1/v) X + s / v + c) / m with the slowest stage X and the sum s >= X, never grows with m. A limit on the step
    itself (its time, price, energy or share of communication) may ask for a smaller m, so nothing is dropped under one.
    """
    batch = problem.job.training.batch_range
    whole_step = problem.limits.max_step_seconds is not None
    whole_step |= problem.limits.max_communication_fraction is not None
    whole_step |= any(not goal.per_sequence for goal, _ in timed_limits(problem))
    if batch.min == batch.max or whole_step:
        return legal
    t = space.topologies
    steps, pipeline = t["gradient_accumulation_steps"], t["pipeline_parallel"]
    many = steps >= np.where(t["virtual_pipeline_stages"] > 1, 2 * pipeline, np.maximum(pipeline, 2))
    # Topologies that share all else are neighbours, by ascending number of micro-batches.
    same = np.logical_and.reduce([t[key][1:] == t[key][:-1] for key in (*STRUCTURE, "micro_batch_size")])
    kept = legal.copy()
    kept[:-1] &= ~((same & many[:-1])[:, None] & legal[1:])
    return kept


def reduced(problem: Problem, spaces: Sequence[BackendSpace], pruning: Pruning) -> tuple[BackendSpace, ...]:
    """Spaces after the reductions that need no prices."""
    if not pruning.accumulation:
        return tuple(spaces)
    return tuple(replace(space, legal=accumulation_rows(problem, space, space.legal)) for space in spaces)
