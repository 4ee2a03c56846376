"""A plain GPT on A100 nodes, and changes to it."""

from typing import Any

from cost_models.catalog import calibration
from cost_models.job import Job
from cost_models.ledger import TimeLedger
from cost_models.pools import pool
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.configuration import BackendChoice, Configuration, RecomputeCounts, Stage
from cost_models.specs.model import ModelSpec
from cost_models.specs.training import TrainingSpec
from cost_models.strategy import Strategy
from cost_models.time import time_ledger
from cost_models.time.frame import Frame

GPT = ModelSpec(
    hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=32, head_dim=128,
    intermediate_size=16384, vocab_size=51200, gated_mlp=False,
)  # fmt: skip


def job(device: str = "a100-sxm-80gb", nodes: int = 1, *, model: ModelSpec = GPT, **training: Any) -> Job:
    """Training of `model` on nodes of 8."""
    links = {key: training.pop(key) for key in ("intra_node_link", "inter_node_link") if key in training}
    spec = TrainingSpec(**({"sequence_length": 2048, "global_batch_size": 64} | training))
    return Job(
        model=model, training=spec,
        cluster=ClusterSpec(pools=(pool(device=device, nodes=nodes, gpus_per_node=8, **links),)),
    )  # fmt: skip


def even(layers: int, stages: int, mode: str = "none", offloaded: int = 0) -> tuple[Stage, ...]:
    """Equal stages of one recompute mode."""
    share = layers // stages
    return (
        Stage(layers=share, recompute=RecomputeCounts(**{mode: share}), optimizer_layers_offloaded=offloaded),
    ) * stages


def configuration(backend: str = "megatron", mode: str = "none", offloaded: int = 0, **changes: Any) -> Configuration:
    """A configuration of GPT with even stages."""
    stages = even(changes.pop("layers", 32), changes.get("pipeline_parallel", 1), mode, offloaded)
    return Configuration(**({"backend": BackendChoice(name=backend), "stages": stages} | changes))


def ledger(of: Job, **changes: Any) -> TimeLedger:
    """The ledger of a configuration under the shipped calibration."""
    return time_ledger(of, configuration(**changes), calibration())


def frame(of: Job, **changes: Any) -> Frame:
    """The frame of a scalar strategy."""
    return Frame(job=of, strategy=Strategy.of(configuration(**changes)), calibration=calibration())
