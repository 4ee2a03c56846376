"""The pipeline schedule: which stage is which, and how many micro-batches each holds."""

from typing import Final

import numpy as np

from cost_models.arrays import Array, Integer

STAGE_CLASSES: Final = ("first", "middle", "last", "both")
"""`first` holds the embedding, `last` the head, `both` is the only stage. The stage-class axis of every table."""
FIRST, MIDDLE, LAST, BOTH = range(4)


def stage_class(stage: int, stages: int) -> int:
    """Index into STAGE_CLASSES of stage `stage` of `stages`."""
    if stages == 1:
        return BOTH
    return FIRST if stage == 0 else LAST if stage == stages - 1 else MIDDLE


def in_flight(stage: Integer, stages: Integer, virtual: Integer, micro_batches: Integer) -> Array:
    r"""Micro-batches whose activations a stage holds at its peak. [micro-batches, a multiple of 1/virtual]

    .. math:: \min(p - s,\; m) \;\text{for } v = 1;
              \quad \min(2(p - s - 1) + (v - 1)p + 1,\; m v) / v \;\text{otherwise}

    Source: 1F1B, arXiv:2104.04473 section 2.2; warm-up count of the interleaved schedule, Megatron-LM
    `pipeline_parallel/schedules.py` (num_warmup_microbatches), plus the one chunk being computed.
    """
    plain = np.minimum(stages - stage, micro_batches)
    chunks = np.minimum(2 * (stages - stage - 1) + (virtual - 1) * stages + 1, micro_batches * virtual)
    result: Array = np.where(np.asarray(virtual) > 1, chunks / virtual, plain)
    return result


def step_seconds(
    slowest: Array, total: Array, tail: Array, fixed: Array, *, micro_batches: Integer, virtual: Integer
) -> Array:
    r"""Time of one optimizer step from its stages. [s]

    .. math:: (m - 1/v)\,\max_s t_s + \tfrac1v \sum_s t_s + \max_s g_s + c

    where `t_s` is stage s's forward and backward of one micro-batch, `g_s` its exposed work after the last
    micro-batch, `c` what does not depend on the layout.
    Source: arXiv:2104.04473 section 2.2 (bubble (p-1)/m, divided by v when interleaved), for uneven stages.
    """
    result: Array = (micro_batches - 1 / np.asarray(virtual)) * slowest + total / virtual + tail + fixed
    return result
