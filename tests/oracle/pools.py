"""Seeded random small jobs on clusters of two or three pools, and every complete configuration of them."""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from cost_models import catalog
from cost_models.job import Job
from cost_models.specs.cluster import ClusterSpec, LinkSpec, NodePool
from cost_models.specs.configuration import Configuration
from solver.domains import Domains
from solver.problem import Problem
from tests.oracle.brute_force import configurations
from tests.oracle.instances import Instance, instance

GIB = 2**30
DEVICES = ("a100-sxm-80gb", "rtx-4090", "h100-sxm-80gb", "a100-sxm-40gb", "l40s")


def _pool(rng: random.Random, name: str, gpus: int) -> NodePool:
    device = catalog.device(name)
    usable = min(int(2 ** rng.uniform(3, 6.3) * GIB), device.usable_memory_bytes)
    per_node = rng.choice([n for n in (1, 2) if gpus % n == 0])
    return NodePool(
        device=device.model_copy(update={"usable_memory_bytes": usable}),
        nodes=gpus // per_node,
        gpus_per_node=per_node,
        intra_node_link=LinkSpec(bandwidth=device.link_bandwidth),
        inter_node_link=LinkSpec(name="network", bandwidth=rng.choice([1e9, 12.5e9, 50e9]), latency_seconds=5e-6),
        link_domain=device.link_domain,
        host_memory_bytes=int(2 ** rng.uniform(4.5, 8) * GIB),
        price_per_gpu_hour=rng.choice([0.5, 1.0, 4.0]),
    )


def pooled(seed: int) -> Instance:
    """An instance on two or three small pools of different devices."""
    rng = random.Random(seed)
    case = instance(seed)
    names = rng.sample(DEVICES, k=rng.choice([2, 2, 3]))
    pools = tuple(_pool(rng, name, rng.choice([1, 2])) for name in names)
    choices: dict[str, Any] = {
        **case.choices,
        "backend": [rng.choice(["megatron", "megatron", "fsdp", "deepspeed"])],
        "precision": ["bf16"],
        "pipeline_parallel": [1, 2, 3],
        "attention": ["flash"],
    }
    pinned = ("micro_batch_size", "sequence_parallel", "zero_stage", "cross_entropy")
    choices |= {key: values[-1:] for key, values in choices.items() if key in pinned}
    training = case.job.training.model_copy(update={"method": "full", "precision": "bf16"})
    job = Job(model=case.job.model, cluster=ClusterSpec(pools=pools), training=training)
    return Instance(job, choices, job.cluster.gpus)


def problem(case: Instance, **extra: Any) -> Problem:
    """The same, as the solver takes it: any part of the cluster may be used."""
    asked = case.problem(**extra)
    return replace(asked, domains=Domains({k: v for k, v in asked.domains.values.items() if k != "gpus"}))


def _counts(pool: NodePool) -> set[int]:
    return {n for n in range(1, pool.gpus + 1) if n < pool.gpus_per_node or n % pool.gpus_per_node == 0}


def placements(job: Job, stages: int, ranks: int) -> Iterator[tuple[int, ...]]:
    """Pools of the stages: each pool's stages follow each other and fill a part of it that is worth asking for."""
    pools = job.cluster.pools
    for placement in itertools.product(range(len(pools)), repeat=stages):
        seen = [pool for pool, _ in itertools.groupby(placement)]
        fills = all(placement.count(pool) * ranks in _counts(pools[pool]) for pool in set(placement))
        if len(seen) == len(set(seen)) and fills:
            yield placement


def everything(case: Instance) -> Iterator[Configuration]:
    """Every complete legal configuration on every part of the cluster."""
    alone = replace(case.job, cluster=ClusterSpec(pools=case.job.cluster.pools[:1]))
    for gpus in range(1, case.job.cluster.gpus + 1):
        for found in configurations(alone, case.choices, gpus):
            for placement in placements(case.job, len(found.stages), gpus // len(found.stages)):
                stages = tuple(
                    stage.model_copy(update={"pool": pool}) for stage, pool in zip(found.stages, placement, strict=True)
                )
                yield found.model_copy(update={"stages": stages})


@dataclass(frozen=True)
class Priced:
    """A configuration that fits, with its step and the price of one."""

    seconds: float
    cost: float
    configuration: Configuration
