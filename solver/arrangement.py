"""Arrangements: how many devices each pool of a cluster gives, and in which order the pools follow along the pipeline.

The stages of a pool are consecutive; a stage lives wholly in one pool. So an arrangement with the number of stages
fixes the pool of every stage: all stages have equally many ranks. Which pool comes first matters, as the first stages
hold more micro-batches in flight.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from cost_models.arrays import IntArray
from cost_models.placement import Placement, View, views
from cost_models.specs.cluster import ClusterSpec, NodePool

MOST: Final = 10_000
"""Arrangements that are looked at; where there would be more, pools give whole nodes, or else all or nothing."""
PARTS: Final = ("any part of a pool", "whole nodes of a pool", "whole pools")


Use = tuple[tuple[int, int], ...]
"""Pools in use with the devices of each, whatever their order along the pipeline; ascending."""


@dataclass(frozen=True)
class Arrangement:
    """Pools along the pipeline with the devices that each gives."""

    turn: int
    """Its place among all arrangements of a problem: the last tie-break but one."""
    parts: tuple[tuple[int, int], ...]
    """Pool and devices, in the order of the pipeline."""

    @property
    def gpus(self) -> int:
        """Devices in use."""
        return sum(count for _, count in self.parts)

    @property
    def use(self) -> Use:
        """The same devices, in no order."""
        return tuple(sorted(self.parts))

    @property
    def pools(self) -> tuple[int, ...]:
        """Pools in use, in the order of the pipeline."""
        return tuple(pool for pool, _ in self.parts)

    @cached_property
    def _common(self) -> int:
        return math.gcd(*(count for _, count in self.parts))

    def divides(self, ranks_per_stage: IntArray) -> np.ndarray:
        """Whether stages of so many ranks fill the devices of every pool."""
        result: np.ndarray = self._common % ranks_per_stage == 0
        return result

    def placement(self, stages: int) -> Placement:
        """The pool of each of so many stages."""
        ranks = self.gpus // stages
        return tuple(pool for pool, count in self.parts for _ in range(count // ranks))

    def nodes(self, cluster: ClusterSpec, stages: int) -> tuple[tuple[int, int], ...]:
        """Stages of each pool along the pipeline, and the devices of its nodes."""
        ranks = self.gpus // stages
        return tuple((count // ranks, cluster.pools[pool].gpus_per_node) for pool, count in self.parts)

    def views(self, cluster: ClusterSpec, stages: int) -> tuple[View, ...]:
        """What each of so many stages sees."""
        return views(cluster, self.placement(stages))

    def total(self, of_device: Callable[[NodePool], float | None], cluster: ClusterSpec) -> float | None:
        """Sum of a figure over all devices in use; None where a pool has none."""
        figures = [of_device(cluster.pools[pool]) for pool in self.pools]
        known = [figure for figure in figures if figure is not None]
        if len(known) < len(figures):
            return None
        return sum(figure * count for figure, (_, count) in zip(known, self.parts, strict=True))


def pool_counts(pool: NodePool) -> tuple[int, ...]:
    """Device counts of a pool worth asking for: any number within a node, then whole nodes."""
    per_node = pool.gpus_per_node
    return (*range(1, per_node), *range(per_node, pool.gpus + 1, per_node))


def part_of_pools(pools: Sequence[NodePool]) -> str:
    """Which parts of pools are combined: the first of PARTS that leaves no more than so many arrangements."""
    return next((part for part in PARTS if _arranged(_counts(pools, part)) <= MOST), PARTS[-1])


def _counts(pools: Sequence[NodePool], part: str) -> list[tuple[int, ...]]:
    """Device counts of each pool, none among them."""
    if part == PARTS[0]:
        return [(0, *pool_counts(pool)) for pool in pools]
    if part == PARTS[1]:
        return [tuple(range(0, pool.gpus + 1, pool.gpus_per_node)) for pool in pools]
    return [(0, pool.gpus) for pool in pools]


def _arranged(counts: Sequence[Sequence[int]]) -> int:
    """How many arrangements these counts make: k pools in use can follow each other in k! ways."""
    ways = [1, *[0] * len(counts)]
    for of_pool in counts:
        for k in range(len(counts), 0, -1):
            ways[k] += ways[k - 1] * (len(of_pool) - 1)
    return sum(math.factorial(k) * count for k, count in enumerate(ways[1:], 1))


def uses(pools: Sequence[NodePool], *, whole: bool) -> Iterator[tuple[int, ...]]:
    """Devices of each pool in every combination; with `whole` each pool is used whole or not at all."""
    counts = _counts(pools, PARTS[-1] if whole else part_of_pools(pools))
    return (use for use in itertools.product(*counts) if any(use))


def arrangements(cluster: ClusterSpec, *, whole: bool) -> tuple[Arrangement, ...]:
    """Every use of the pools in every order along the pipeline."""
    found = []
    for use in uses(cluster.pools, whole=whole):
        parts = [(pool, count) for pool, count in enumerate(use) if count]
        found += list(itertools.permutations(parts))
    return tuple(Arrangement(turn, parts) for turn, parts in enumerate(found))
