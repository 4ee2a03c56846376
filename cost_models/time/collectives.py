"""Collectives by alpha and beta on the real topology: which ranks share a link, and who else uses it.

Ranks are ordered tensor, context, data, pipeline: a group of `size` ranks that lie `stride` apart has
`stride` sisters using the same links at the same time.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from cost_models.arrays import choose
from cost_models.specs.cluster import LinkSpec
from cost_models.time.frame import Frame, device_keys, once


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates of collectives over that of an all-reduce: what a probe of the link measured, else 1."""

    gather: float = 1.0
    scatter: float = 1.0
    exchange: float = 1.0

    @classmethod
    def of(cls, link: LinkSpec) -> "Rates":
        """Of a link."""
        return cls(link.all_gather_rate, link.reduce_scatter_rate, link.all_to_all_rate)


@dataclass(frozen=True, kw_only=True)
class Group:
    """Ranks that communicate."""

    size: Any
    stride: Any
    per_node: Any
    """Members that reach each other without the network."""
    nodes: Any
    """Link domains that the group spans."""
    link_rate: Any
    """Rate of one member inside the node. [bytes/s]"""
    network_rate: Any
    """Rate of one member across nodes. [bytes/s]"""
    link_latency: float
    network_latency: float
    link_rates: Rates = Rates()
    network_rates: Rates = Rates()

    @cached_property
    def latency(self) -> Any:
        """Of one pass of a message over all members. [s]"""
        k = self.nodes
        return choose(k > 1, hops(k) * self.network_latency, 0.0) + hops(self.per_node) * self.link_latency


def group(frame: Frame, size: Any, stride: Any) -> Group:
    """The links that a group of ranks uses.

    A host bridge that all devices of a node share is divided among the sister groups that cross it. A rank reaches
    devices of its node outside its link domain over PCIe.
    Source: rank order, Megatron-LM `core/parallel_state.py`; one network card per device, NCCL rail layout.
    """
    pool = frame.job.pool
    domain = max(pool.link_domain, pool.gpus_per_node)
    size, stride = np.asarray(size, dtype=np.float64)[()], np.asarray(stride, dtype=np.float64)[()]
    per_node = np.minimum(np.maximum(np.floor(domain / stride), 1.0), size)
    link, network = pool.intra_node_link, pool.inter_node_link
    joined = np.minimum(size * stride, domain) <= pool.link_domain
    direct = (
        link.bandwidth
        * link_efficiency(frame)
        * _crossing(frame, size * stride)
        / (stride if link.shared_by_node else 1.0)
    )
    bridged = min(link.bandwidth, frame.device.pcie_bandwidth) * frame.factor("link_efficiency", "pcie") / stride
    cards = pool.gpus_per_node if network.shared_by_node else 1.0
    return Group(
        size=size,
        stride=stride,
        per_node=per_node,
        nodes=np.ceil(size / per_node),
        link_rate=choose(joined, direct, bridged),
        network_rate=network.bandwidth * network_efficiency(frame) / cards,
        link_latency=link.latency_seconds + frame.factor("link_step_seconds"),
        network_latency=network.latency_seconds + frame.factor("network_step_seconds", network.name, "default"),
        link_rates=Rates.of(link),
        network_rates=Rates.of(network),
    )


def between_pools(frame: Frame, link: LinkSpec, size: Any, stride: Any) -> Group:
    """Ranks of two pools, each on a node of its own, joined by `link` as one device sees it."""
    one = np.ones_like(np.asarray(size, dtype=np.float64))
    rate = link.bandwidth * frame.factor("network_efficiency", link.name, "default")
    return Group(
        size=size,
        stride=stride,
        per_node=one,
        nodes=size * one,
        link_rate=rate * one,
        network_rate=rate,
        link_latency=0.0,
        network_latency=link.latency_seconds + frame.factor("network_step_seconds", link.name, "default"),
        network_rates=Rates.of(link),
    )


def _crossing(frame: Frame, span: Any) -> Any:
    """Share of a host bridge's rate that is left to a group spanning both sockets of a server.

    Source: NCCL user guide, environment variables (paths PHB and SYS differ in bandwidth); value fitted.
    """
    pool = frame.job.pool
    crosses = np.minimum(span, pool.gpus_per_node) > frame.factor("devices_per_socket")
    bridge = pool.intra_node_link.shared_by_node
    return choose(crosses & bridge, frame.factor("socket_crossing_efficiency"), 1.0)


def link_efficiency(frame: Frame) -> float:
    """Bus bandwidth of large collectives over the published rate of the intra-node link; a measured rate is one."""
    link = frame.job.pool.intra_node_link
    if link.measured:
        return frame.factor("link_efficiency", "measured")
    kinds = ("pcie",) if link.name.startswith("pcie") or link.shared_by_node else ()
    return frame.factor("link_efficiency", link.name, *kinds, *device_keys(frame.device))


def network_efficiency(frame: Frame) -> float:
    """Sustained over published rate between nodes.

    Fabrics of the 400 Gb/s generation route adaptively, a rail for each device, and their cards read device memory
    over PCIe gen5; older ones lose more to congestion and to the host.
    Source: NVIDIA DGX SuperPOD reference architecture (H100), rail-optimised fabric; values fitted.
    """
    pool = frame.job.pool
    network = pool.inter_node_link
    if network.measured:
        return frame.factor("link_efficiency", "measured")
    card = network.bandwidth / (pool.gpus_per_node if network.shared_by_node else 1.0)
    generation = ("400g",) if card >= frame.factor("fast_network_bandwidth") else ()
    return frame.factor("network_efficiency", network.name, *generation, "default")


@lru_cache(maxsize=4096)
def _hops_of_one(size: float) -> float:
    fraction, power = math.frexp(max(size / 8.0, 1.0))
    return min(size, 8.0) - 1 + power - (fraction == 0.5)


def hops(size: Any) -> Any:
    """Latency steps of a ring of up to 8, then of a tree above it. [steps]

    Source: NCCL chooses rings in a node and trees across many ranks, whose depth is logarithmic.
    """
    if np.ndim(size) == 0:
        return _hops_of_one(float(size))
    ring = np.minimum(size, 8.0) - 1
    mantissa, exponent = np.frexp(np.maximum(size / 8.0, 1.0))
    return ring + exponent - (mantissa == 0.5)  # ceil(log2) without a transcendental function


def ring_pass_seconds(group: Group, size: Any, link: float, network: float) -> Any:
    r"""One pass of `size` bytes around a ring, at shares `link` and `network` of the rates of an all-reduce. [s]

    .. math:: \max\!\left(\frac{q-1}{q}\frac{B}{\beta_{link}},\; \frac{k-1}{k}\frac{B}{q\,\beta_{nic}}\right) + \alpha

    for k nodes of q members: what leaves a node is (k-1)/k of the bytes, not (n-1)/n, and its q members share it
    over q network cards.
    Source: bandwidth-optimal rings, Patarasuk and Yuan, J. Parallel Distrib. Comput. 69 (2009) section 3, applied to
    each level of the hierarchy.
    """
    q, k = group.per_node, group.nodes
    inside = (q - 1) / q * size / (group.link_rate * link)
    across = (k - 1) / k * size / (q * group.network_rate * network)
    return np.maximum(inside, across) + group.latency


def reduce_scatter_seconds(group: Group, size: Any) -> Any:
    """Reduce-scatter of `size` bytes per rank before it. [s]"""
    return ring_pass_seconds(group, size, group.link_rates.scatter, group.network_rates.scatter)


def all_gather_seconds(group: Group, size: Any) -> Any:
    """All-gather of `size` bytes per rank after it. [s]"""
    return ring_pass_seconds(group, size, group.link_rates.gather, group.network_rates.gather)


def all_reduce_seconds(group: Group, size: Any) -> Any:
    """All-reduce of `size` bytes: both passes of a ring. [s]"""
    return 2 * ring_pass_seconds(group, size, 1.0, 1.0)


def all_to_all_seconds(group: Group, size: Any, distinct: Any = 1.0) -> Any:
    r"""All-to-all in which each rank sends `size` bytes, spread evenly over the group. [s]

    .. math:: \frac{B}{n}\left(\frac{q-1}{\beta_{link}} + \frac{d\,(n-q)}{\beta_{nic}}\right) + \alpha

    d is the share of what goes to other nodes that differs (`distinct`).
    Source: each rank keeps 1/n of its bytes; split at the link domain.
    """
    n, q = group.size, group.per_node
    inside = (q - 1) / n * size / (group.link_rate * group.link_rates.exchange)
    across = distinct * (n - q) / n * size / (group.network_rate * group.network_rates.exchange)
    latency = choose(n > q, group.network_latency, 0.0) + choose(n > 1, group.link_latency, 0.0)
    return inside + across + latency


def neighbour_seconds(group: Group, size: Any) -> Any:
    """Sending `size` bytes to the next rank of a ring, at the rate of its slowest hop. [s]"""
    slow = group.nodes > 1
    rate = choose(slow, np.minimum(group.network_rate, group.link_rate), group.link_rate)
    return choose(group.size > 1, size / rate + choose(slow, group.network_latency, group.link_latency), 0.0)


@once
def tensor_group(frame: Frame) -> Group:
    """Tensor-parallel ranks."""
    return group(frame, frame.tp, 1.0)


@once
def context_group(frame: Frame) -> Group:
    """Context-parallel ranks."""
    return group(frame, frame.cp, frame.tp)


@once
def replica_group(frame: Frame) -> Group:
    """Ranks that hold the same dense weights: data- and context-parallel together."""
    return group(frame, frame.replicas, frame.tp)


@once
def expert_group(frame: Frame) -> Group:
    """Ranks that hold different experts of one layer."""
    return group(frame, frame.ep, frame.etp)


@once
def expert_replica_group(frame: Frame) -> Group:
    """Ranks that hold the same experts."""
    return group(frame, frame.expert_replicas, frame.ep * frame.etp)


@once
def ring_exchange_seconds(frame: Frame) -> Any:
    r"""Keys and values travelling once around the context-parallel ranks, forward of one layer. [s]

    .. math:: (c-1)\,[T (k + v) \beta / \text{rate} + \alpha]

    Source: Ring Attention, arXiv:2310.01889 section 3.
    """
    model = frame.model
    if model.mla is not None:
        width = (model.query_width + model.num_attention_heads * model.mla.v_head_dim) / frame.tp
    else:
        width = 2.0 * model.key_value_width / np.minimum(frame.tp, model.num_key_value_heads)
    return (frame.cp - 1) * neighbour_seconds(context_group(frame), frame.tokens * width * frame.width)
