"""A job and its ledger in one call, for the unit tests of memory."""

from typing import Any

from cost_models import catalog
from cost_models.job import Job
from cost_models.ledger import MemoryLedger
from cost_models.memory import memory_ledger
from cost_models.pools import pool
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.configuration import Configuration
from cost_models.specs.framework import FrameworkFacts
from cost_models.specs.model import ModelSpec
from cost_models.specs.training import TrainingSpec

SMALL = ModelSpec(
    hidden_size=1024, num_hidden_layers=8, num_attention_heads=16, num_key_value_heads=4, head_dim=64,
    intermediate_size=2816, vocab_size=32768,
)  # fmt: skip


def ledger(
    model: ModelSpec = SMALL,
    *,
    backend: str = "deepspeed",
    device: str = "a100-sxm-80gb",
    training: dict[str, Any] | None = None,
    stages: list[dict[str, Any]] | None = None,
    facts: FrameworkFacts | None = None,
    oom_risk: float = 0.5,
    cluster: dict[str, Any] | None = None,
    **configuration: Any,
) -> MemoryLedger:
    """The ledger of a configuration; without `stages` all layers on one stage, nothing recomputed."""
    job = Job(
        model=model,
        cluster=ClusterSpec(pools=(pool(device=device, **(cluster or {})),)),
        training=TrainingSpec(**{"sequence_length": 1024, "global_batch_size": 64, **(training or {})}),
    )
    layers = model.num_hidden_layers
    read = Configuration.read(
        {
            "backend": {"name": backend},
            "stages": stages or [{"layers": layers, "recompute": {"none": layers}}],
            **configuration,
        }
    )
    return memory_ledger(
        job, read, catalog.calibration(), oom_risk=oom_risk, frameworks={backend: facts} if facts else None
    )


def term(named: MemoryLedger, instant: str, name: str, stage: int = 0) -> float:
    """Bytes of one term, 0 where it is absent."""
    return named.stages[stage].instants[instant].get(name, 0.0)
