"""What a run needs beside its configuration: environment, and how the learning rate follows the batch."""

from math import sqrt
from typing import Final

from cost_models.job import Job
from cost_models.placement import pool_jobs
from cost_models.specs.configuration import Configuration
from planner.plan import Recommendations
from planner.prediction import rounded

_ADAPTIVE: Final = frozenset({"adamw", "adamw-8bit", "adafactor", "lion", "muon", "1-bit-adam"})
_SECOND_MOMENT_DECAY: Final = 0.999
"""Default beta_2 of Adam, arXiv:1412.6980."""


def recommend(job: Job, configuration: Configuration) -> Recommendations:
    """Environment and schedule.

    The learning rate is scaled against the smallest batch asked for: with its square root for adaptive optimizers
    (arXiv:2205.10287), linearly for SGD (arXiv:1706.02677). Warm-up is 2 / (1 - beta_2) steps (arXiv:1910.04209).
    """
    batch = job.training.batch_range
    ratio = configuration.global_batch_size / batch.min
    adaptive = configuration.optimizer in _ADAPTIVE
    return Recommendations(
        learning_rate_scale=rounded(sqrt(ratio) if adaptive else ratio),
        warmup_steps=round(2 / (1 - _SECOND_MOMENT_DECAY)) if adaptive else None,
        environment=_environment(job, configuration),
    )


def _environment(job: Job, configuration: Configuration) -> dict[str, str]:
    """What torch and Megatron read from the environment."""
    found: dict[str, str] = {}
    gpu = all(seen.device.kind == "gpu" for seen in pool_jobs(job, configuration))
    if gpu:
        found["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    split = configuration.tensor_parallel > 1 or configuration.context_parallel > 1
    unsharded = configuration.zero_stage <= 1  # Megatron-FSDP refuses to start with one connection
    if configuration.backend.name == "megatron" and split and unsharded and gpu:
        # Orders kernels so that communication of split layers overlaps: megatron/training/arguments.py demands it of
        # devices before Blackwell.
        found["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    return found
