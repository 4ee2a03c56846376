"""Placements: which pool each pipeline stage lives in, and the job as the ranks of a stage see it.

A stage lives wholly in one pool: its tensor-, context-, expert- and data-parallel groups use that pool's links. Only
the transfers between consecutive stages, and a tied embedding's, cross to another pool, over the slower network.
"""

from itertools import pairwise

from cost_models.errors import BrokenRule
from cost_models.job import Job
from cost_models.specs.cluster import ClusterSpec, LinkSpec, NodePool
from cost_models.specs.configuration import Configuration

Placement = tuple[int, ...]
"""Pool of each stage."""
View = tuple[int, int | None, int | None]
"""What a stage sees: its pool; the pool whose network carries its boundary transfers, and the one whose network joins
the first to the last stage, None where those stay in its own pool."""


def placement_of(configuration: Configuration) -> Placement:
    """The pools of a configuration's stages."""
    return tuple(stage.pool for stage in configuration.stages)


def network_rate(pool: NodePool) -> float:
    """Network share of one device, published. [bytes/s]"""
    return pool.inter_node_link.bandwidth / (pool.gpus_per_node if pool.inter_node_link.shared_by_node else 1)


def between(cluster: ClusterSpec, slow: int) -> LinkSpec:
    """What joins a pool to another one, as one device sees it when all of its node use it at once.

    The link that the cluster states, shared by the devices of the largest node where nodes share it; else the network
    of the pool.
    """
    stated = cluster.between_pools
    if stated is not None:
        most = max(pool.gpus_per_node for pool in cluster.pools) if stated.shared_by_node else 1
        return stated.model_copy(update={"bandwidth": stated.bandwidth / most, "shared_by_node": False})
    pool = cluster.pools[slow]
    changes = {"bandwidth": network_rate(pool), "shared_by_node": False}
    return pool.inter_node_link.model_copy(update=changes)


def slower_network(cluster: ClusterSpec, a: int, b: int) -> int:
    """Of two pools, the one whose network limits what passes between them."""
    return min(a, b, key=lambda pool: (network_rate(cluster.pools[pool]), pool))


def views(cluster: ClusterSpec, placement: Placement) -> tuple[View, ...]:
    """The view of each stage."""
    first, last = placement[0], placement[-1]
    ends = None if first == last else slower_network(cluster, first, last)
    found = []
    for s, pool in enumerate(placement):
        beside = [other for other in placement[max(s - 1, 0) : s + 2] if other != pool]
        slow = [slower_network(cluster, pool, other) for other in beside]
        boundary = min(slow, key=lambda k: (network_rate(cluster.pools[k]), k)) if slow else None
        found.append((pool, boundary, ends if s in (0, len(placement) - 1) else None))
    return tuple(found)


def seen(job: Job, view: View) -> Job:
    """The job as a stage of this view sees it: a cluster of its own pool."""
    pool, boundary, ends = view
    pools = job.cluster.pools
    return Job(
        model=job.model,
        cluster=ClusterSpec(pools=(pools[pool],)) if len(pools) > 1 else job.cluster,
        training=job.training,
        boundary=None if boundary is None else between(job.cluster, boundary),
        ends=None if ends is None else between(job.cluster, ends),
    )


def in_pool(job: Job, pool: int) -> Job:
    """The job as if its cluster were one of its pools."""
    return seen(job, (pool, None, None))


def stage_jobs(job: Job, placement: Placement) -> tuple[Job, ...]:
    """The job as each stage sees it; stages of one view share theirs.

    Raises:
        BrokenRule: a stage names a pool that the cluster lacks.
    """
    count = len(job.cluster.pools)
    if max(placement) >= count:
        raise BrokenRule(f"a stage lives in pool {max(placement)} but cluster.pools lists {count}, from 0")
    if count == 1:
        return (job,) * len(placement)
    known = {view: seen(job, view) for view in dict.fromkeys(views(job.cluster, placement))}
    return tuple(known[view] for view in views(job.cluster, placement))


def in_use(job: Job, configuration: Configuration) -> dict[int, int]:
    """Devices that a configuration takes of each pool that it uses."""
    placement, ranks = placement_of(configuration), configuration.world_size // configuration.pipeline_parallel
    return {pool: placement.count(pool) * ranks for pool in pools_used(placement)}


def pool_jobs(job: Job, configuration: Configuration) -> tuple[Job, ...]:
    """The job in each pool that a configuration uses."""
    return tuple(in_pool(job, pool) for pool in pools_used(placement_of(configuration)))


def pools_used(placement: Placement) -> tuple[int, ...]:
    """Pools with a stage, ascending."""
    return tuple(sorted(set(placement)))


def consecutive(placement: Placement) -> bool:
    """Whether the stages of every pool follow each other."""
    return sum(a != b for a, b in pairwise(placement)) == len(set(placement)) - 1
