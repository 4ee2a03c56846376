"""Arrangements of pools: which parts are combined, and how many ways that makes."""

from cost_models.pools import pool
from cost_models.specs.cluster import ClusterSpec
from solver.arrangement import MOST, PARTS, arrangements, part_of_pools, pool_counts


def cluster(pools: int, nodes: int, per_node: int) -> ClusterSpec:
    one = pool(device="a100-sxm-80gb", nodes=nodes, gpus_per_node=per_node)
    return ClusterSpec(pools=(one,) * pools)


def test_a_pool_gives_any_part_of_a_node_or_whole_nodes() -> None:
    assert pool_counts(cluster(1, 3, 4).pools[0]) == (1, 2, 3, 4, 8, 12)


def test_every_use_comes_in_every_order() -> None:
    found = [one.parts for one in arrangements(cluster(2, 1, 2), whole=False)]
    assert len(found) == len(set(found)) == 2 * 2 + 2 * (2 * 2)


def test_where_parts_are_too_many_coarser_ones_are_combined() -> None:
    for asked, part in ((cluster(2, 8, 8), PARTS[0]), (cluster(4, 1, 8), PARTS[1]), (cluster(4, 8, 8), PARTS[2])):
        assert part_of_pools(asked.pools) == part
        assert len(arrangements(asked, whole=False)) <= MOST
    assert {one.parts for one in arrangements(cluster(3, 1, 8), whole=True)} <= {
        one.parts for one in arrangements(cluster(3, 1, 8), whole=False)
    }
