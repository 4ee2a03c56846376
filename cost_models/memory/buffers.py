"""Sizes of the communication buffers that the ledger counts, as a framework's configuration states them."""

from dataclasses import dataclass
from math import ceil

import numpy as np

from cost_models.calibration import Calibration
from cost_models.job import Job
from cost_models.memory.options import facts_of
from cost_models.memory.overheads import bucket_parameters, budget_parameters
from cost_models.memory.pieces import Pieces
from cost_models.memory.setting import Setting
from cost_models.specs.configuration import Configuration
from cost_models.strategy import Strategy

ALIGNMENT = 2
"""DeepSpeed wants bucket sizes that NCCL's 4-byte alignment divides: deepspeed/runtime/zero/stage_1_and_2.py."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferSizes:
    """Of one rank. [parameters]"""

    bucket: int
    """One reduce bucket."""
    live: int
    """Most gathered parameters that stay resident where weights are sharded."""
    prefetch: int
    persistent: int
    """Largest tensor that is never partitioned."""


def buffer_sizes(job: Job, configuration: Configuration) -> BufferSizes:
    """What `memory_ledger` counts for this configuration, rounded up to what can be configured."""
    setting = Setting(job=job, strategy=Strategy.of(configuration), frameworks=facts_of(job.training, None))
    pieces = Pieces(setting=setting, calibration=Calibration(version="none", factors={}))
    live = _whole(budget_parameters(setting, pieces.layers, pieces.whole))
    return BufferSizes(
        bucket=_whole(bucket_parameters(setting, pieces.trained)),
        live=live,
        prefetch=min(_whole(setting.fact("prefetch_parameters")), live),
        persistent=int(setting.fact("persistent_parameters")),
    )


def _whole(parameters: object) -> int:
    return ceil(float(np.asarray(parameters)) / ALIGNMENT) * ALIGNMENT
