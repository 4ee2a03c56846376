"""Parts of published sources that differ in kind and are reported apart."""

from typing import Final

from planner.datasets.jobs import Case
from planner.measurement import Measurement
from planner.uncertainty import SMALL_WIDTH

NODE: Final = 8
"""Devices of the one node of vTrain's composed table."""
_METHODS: Final = {"full": "full", "lora": "LoRA", "qlora": "QLoRA"}


def part_of(row: Measurement, case: Case) -> str:
    """The part that the row belongs to; "" where its source is of one kind."""
    job, configuration = case.job, case.configuration
    experts = "MoE" if job.model.moe else "dense"
    parts = {
        "vtrain": "multi-node" if configuration.world_size > NODE else "single-node",
        "megatron-bridge": experts,
        "simumax": "CP" if configuration.context_parallel > 1 and not job.model.moe else experts,
        "litgpt": _METHODS[job.training.method],
        "peft": _METHODS[job.training.method],
        "bigscience": job.device.family,
        "megatron-ci": "toy" if job.model.hidden_size < SMALL_WIDTH else "real",
    }
    return parts.get(row.source, "")
