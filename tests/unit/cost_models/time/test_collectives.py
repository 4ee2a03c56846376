"""Which links a group uses, and how long its collectives take."""

import numpy as np
import pytest

from cost_models.time.collectives import (
    all_gather_seconds,
    all_reduce_seconds,
    all_to_all_seconds,
    group,
    hops,
    network_efficiency,
    reduce_scatter_seconds,
    replica_group,
)
from tests.unit.cost_models.time.cases import frame, job

GB = 1e9


def test_ring_in_one_node() -> None:
    """(n-1)/n of the bytes cross every link, beside a latency per step."""
    f = frame(job(), tensor_parallel=8)
    g = group(f, 8, 1)
    wire = 7 / 8 * GB / g.link_rate
    assert g.nodes == 1
    assert reduce_scatter_seconds(g, GB) == pytest.approx(wire + 7 * g.link_latency)
    assert all_reduce_seconds(g, GB) == pytest.approx(2 * (wire + 7 * g.link_latency))


def test_a_measured_rate_of_a_collective_slows_that_one_alone() -> None:
    link = {"name": "probed", "bandwidth": "100GB/s", "measured": True}
    plain = group(frame(job(intra_node_link=link), tensor_parallel=8), 8, 1)
    slow = {"all_gather_rate": 0.5, "reduce_scatter_rate": 0.25, "all_to_all_rate": 0.2}
    probed = group(frame(job(intra_node_link=link | slow), tensor_parallel=8), 8, 1)
    assert all_reduce_seconds(probed, GB) == all_reduce_seconds(plain, GB)
    for seconds, share in ((all_gather_seconds, 0.5), (reduce_scatter_seconds, 0.25), (all_to_all_seconds, 0.2)):
        latency = seconds(plain, 0.0)
        assert seconds(probed, GB) - latency == pytest.approx((seconds(plain, GB) - latency) / share)


def test_two_nodes_exchange_half_of_the_bytes_not_fifteen_sixteenths() -> None:
    """Across k nodes (k-1)/k of the bytes leave a node, over one card per member."""
    f = frame(job(nodes=2), data_parallel=16)
    g = group(f, 16, 1)
    assert (g.per_node, g.nodes) == (8, 2)
    across = 1 / 2 * GB / (8 * g.network_rate)
    inside = 7 / 8 * GB / g.link_rate
    latency = g.network_latency + 7 * g.link_latency
    assert reduce_scatter_seconds(g, GB) == pytest.approx(max(across, inside) + latency)


@pytest.mark.parametrize(("tensor", "members"), [(1, 8), (2, 4), (8, 1)])
def test_a_data_parallel_group_has_the_cards_of_its_members_in_a_node(tensor: int, members: int) -> None:
    """Rank order: tensor parallelism takes the neighbours, so replicas lie that far apart."""
    f = frame(job(nodes=4), tensor_parallel=tensor, data_parallel=32 // tensor)
    g = replica_group(f)
    assert g.per_node == members
    assert g.nodes == 4


def test_groups_that_cross_one_host_bridge_share_it() -> None:
    """On a PCIe box two sister groups halve the rate of each."""
    alone = replica_group(frame(job("a100-pcie-80gb"), data_parallel=8))
    shared = replica_group(frame(job("a100-pcie-80gb"), tensor_parallel=2, data_parallel=4))
    assert shared.link_rate == pytest.approx(alone.link_rate / 2)


def test_a_network_card_that_a_node_shares_is_divided() -> None:
    """One card for eight devices gives each an eighth."""
    own = job(nodes=2, inter_node_link={"name": "x", "bandwidth": "20GB/s", "shared_by_node": False})
    one = job(nodes=2, inter_node_link={"name": "x", "bandwidth": "20GB/s", "shared_by_node": True})
    rates = [group(frame(j), 16, 1).network_rate for j in (own, one)]
    assert rates[0] == pytest.approx(8 * rates[1])


def test_fabrics_of_the_400_gigabit_generation_sustain_more() -> None:
    """A share of its own for cards from that rate on, whether it is a device's or a node's divided."""
    fast = job(nodes=2, inter_node_link={"name": "x", "bandwidth": "400Gb/s", "shared_by_node": False})
    slow = job(nodes=2, inter_node_link={"name": "x", "bandwidth": "200Gb/s", "shared_by_node": False})
    one = job(nodes=2, inter_node_link={"name": "x", "bandwidth": "400Gb/s", "shared_by_node": True})
    shares = [network_efficiency(frame(j)) for j in (fast, slow, one)]
    assert shares[0] > shares[1] == shares[2]


def test_a_rack_of_72_is_one_domain() -> None:
    """Nodes of an NVL72 rack reach each other without the network."""
    f = frame(job("gb200", nodes=8))
    assert group(f, 64, 1).nodes == 1


def test_all_to_all_splits_at_the_node() -> None:
    """Of 16 ranks 7 peers are near, 8 far, and a rank keeps its own sixteenth."""
    g = group(frame(job(nodes=2)), 16, 1)
    expected = 7 / 16 * GB / g.link_rate + 8 / 16 * GB / g.network_rate + g.link_latency + g.network_latency
    assert all_to_all_seconds(g, GB) == pytest.approx(expected)


def test_latency_steps_are_a_ring_then_a_tree() -> None:
    """Exact at and between powers of two."""
    sizes = np.array([1, 2, 8, 9, 16, 17, 72, 1024], dtype=float)
    np.testing.assert_array_equal(hops(sizes), [0, 1, 7, 8, 8, 9, 11, 14])
