"""How long pricing takes on one core: `python -m benchmarks.pricing`. Two budgets, and how far within each we are."""

import sys
import time
from collections.abc import Callable

import numpy as np

from cost_models import catalog
from cost_models.job import Job
from cost_models.ledger import estimate
from cost_models.pools import pool
from cost_models.specs.choices import ATTENTIONS, BACKENDS, COMPRESSIONS, CROSS_ENTROPIES, PRECISIONS
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.configuration import BackendChoice, Configuration, RecomputeCounts, Stage
from cost_models.specs.training import TrainingSpec
from cost_models.strategy import Strategy
from cost_models.table import price

MODELS = ("llama-2-7b", "llama-3-70b", "deepseek-v3")
CANDIDATES = 100_000
PRICING_BUDGET = 1.0
"""Processor seconds in which 100,000 configurations are to be priced."""
ESTIMATE_BUDGET = 0.002
"""Processor seconds of one estimate."""


def job(model: str) -> Job:
    """A model on 512 H100."""
    cluster = ClusterSpec(pools=(pool(device="h100-sxm-80gb", nodes=64, gpus_per_node=8),))
    return Job(
        model=catalog.model(model), cluster=cluster, training=TrainingSpec(sequence_length=8192, global_batch_size=512)
    )


def candidates(count: int) -> Strategy:
    """Strategies drawn over every column, the same at every call."""
    draw = np.random.default_rng(0)

    def choice(names: tuple[str, ...]) -> np.ndarray:
        return draw.integers(0, len(names), count)

    # fp4 formats need a device that has them.
    runnable = [i for i, name in enumerate(PRECISIONS) if "fp4" not in name]

    def degree(most: int) -> np.ndarray:
        return 2 ** draw.integers(0, most, count)

    flags = {
        name: draw.integers(0, 2, count)
        for name in (
            "sequence_parallel", "optimizer_offload", "parameter_offload", "activation_offload",
            "communication_overlap", "expert_overlap", "fused_kernels", "cuda_graph", "compile",
        )
    }  # fmt: skip
    return Strategy(
        backend=choice(BACKENDS), precision=draw.choice(runnable, count), attention=choice(ATTENTIONS),
        cross_entropy=choice(CROSS_ENTROPIES), gradient_compression=choice(COMPRESSIONS), tensor_parallel=degree(4),
        context_parallel=degree(3), expert_parallel=degree(4), expert_tensor_parallel=np.ones(count, int),
        pipeline_parallel=degree(4), virtual_pipeline_stages=draw.integers(1, 3, count), data_parallel=degree(6),
        zero_stage=draw.integers(0, 4, count), micro_batch_size=draw.integers(1, 5, count),
        gradient_accumulation_steps=draw.integers(1, 64, count), recompute_interval=np.ones(count, int), **flags,
    )  # fmt: skip


def configuration(layers: int) -> Configuration:
    """Megatron-LM with tensor parallelism of eight."""
    stage = Stage(layers=layers, recompute=RecomputeCounts(none=layers))
    return Configuration(
        backend=BackendChoice(name="megatron"), data_parallel=64, zero_stage=1, tensor_parallel=8,
        sequence_parallel=True, micro_batch_size=1, gradient_accumulation_steps=8, stages=(stage,),
        cross_entropy="vocab_parallel",
    )  # fmt: skip


def best(run: Callable[[], object], *, repeats: int, times: int) -> float:
    """Least processor time of one run. [s]"""
    found = float("inf")
    for _ in range(repeats):
        started = time.process_time()
        for _ in range(times):
            run()
        found = min(found, (time.process_time() - started) / times)
    return found


def measure(model: str) -> tuple[float, float]:
    """Seconds to price `CANDIDATES` configurations, and of one estimate."""
    asked, constants, rows = job(model), catalog.calibration(), candidates(CANDIDATES)
    one = configuration(asked.model.num_hidden_layers)
    pricing = best(lambda: price(asked, rows, constants), repeats=3, times=1)
    single = best(lambda: estimate(asked, one, constants), repeats=5, times=20)
    return pricing, single


def main() -> int:
    """Print both for every model; exits 1 when a budget is broken."""
    broken = 0
    print(f"{'model':14} {'100,000 priced':>15} {'of budget':>10} {'one estimate':>13} {'of budget':>10}")
    for model in MODELS:
        pricing, single = measure(model)
        broken += pricing > PRICING_BUDGET or single > ESTIMATE_BUDGET
        shares = pricing / PRICING_BUDGET, single / ESTIMATE_BUDGET
        print(f"{model:14} {pricing:13.3f} s {shares[0]:10.2f} {1000 * single:10.2f} ms {shares[1]:10.2f}", flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
