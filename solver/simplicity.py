"""Simplicity: of two equal plans the one with fewer techniques in use is preferred. Less is simpler."""

from typing import Any

import numpy as np

from cost_models.arrays import IntArray
from cost_models.specs.choices import COMPRESSIONS
from cost_models.strategy import Strategy


def simplicity(strategy: Strategy) -> IntArray:
    """One number a row: each degree of parallelism in use, each technique, each ZeRO stage adds to it."""
    s = strategy

    def on(condition: Any, weight: int) -> Any:
        return np.asarray(condition, dtype=np.int64) * weight

    total = (
        on(np.asarray(s.gradient_compression) != COMPRESSIONS.index("none"), 8)
        + on(np.asarray(s.parameter_offload) > 0, 8)
        + on(np.asarray(s.activation_offload) > 0, 8)
        + on(np.asarray(s.optimizer_offload) > 0, 6)
        + on(np.asarray(s.context_parallel) > 1, 4)
        + on(np.asarray(s.virtual_pipeline_stages) > 1, 4)
        + on(np.asarray(s.pipeline_parallel) > 1, 3)
        + on(np.asarray(s.expert_parallel) > 1, 2)
        + on(np.asarray(s.tensor_parallel) > 1, 2)
        + on(np.asarray(s.recompute_interval) > 1, 1)
        + np.asarray(s.zero_stage, dtype=np.int64)
    )
    return np.asarray(total, dtype=np.int64)
