"""What of a row its layers, its ends and its whole time depend on: rows that agree in it take the same time."""

from dataclasses import replace
from typing import Any

import numpy as np

from cost_models.specs.choices import COMPRESSIONS
from cost_models.strategy import Strategy


def timed(strategy: Strategy) -> Strategy:
    """The rows without what no coefficient of time reads: how often, how far apart and for how many layers."""
    return replace(strategy, gradient_accumulation_steps=1, recompute_interval=1, optimizer_offload=0)


def layers(strategy: Strategy) -> Strategy:
    """The rows as a layer's micro-batch sees them.

    The other stages do not show, nor do the replicas where neither weights nor gradients travel in every micro-batch.
    """
    s, none = timed(strategy), COMPRESSIONS.index("none")
    alone = np.asarray(s.pipeline_parallel) == 1
    travels: Any = (alone & (np.asarray(s.zero_stage) >= 2)) | (np.asarray(s.parameter_offload) > 0)
    return replace(
        s,
        pipeline_parallel=np.where(alone, 1, 2),
        virtual_pipeline_stages=1,
        cross_entropy=0,
        data_parallel=np.where(travels, s.data_parallel, 1),
        zero_stage=np.where(travels, s.zero_stage, 0),
        gradient_compression=np.where(travels, s.gradient_compression, none),
    )


def ends(strategy: Strategy) -> Strategy:
    """The rows as a micro-batch sees embedding and head: as a layer does that has no experts but a loss."""
    return replace(
        layers(strategy),
        cross_entropy=strategy.cross_entropy,
        expert_parallel=1,
        expert_tensor_parallel=1,
        expert_overlap=0,
    )
