"""Peaks of DeepSpeed runs on two processes, measured with PyTorch's memory tracker, against the ledger.

The rows tell apart what is alive at the loss, in backward and at its end: buckets, flattened and accumulated gradients.
"""

import csv
from pathlib import Path

import pytest

from cost_models import catalog
from cost_models.memory import memory_ledger
from planner.request import PlanRequest
from planner.resolve import resolve

ROWS = Path(__file__).parent / "data" / "deepspeed_peaks.csv"
SIZES = {
    "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "intermediate_size": 1408,
    "vocab_size": 8192, "tie_word_embeddings": False,
}  # fmt: skip
TOLERANCE = 0.04


def rows() -> list[dict[str, str]]:
    lines = [line for line in ROWS.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))


@pytest.mark.parametrize("row", rows(), ids=lambda row: "-".join(list(row.values())[:-2]))
def test_the_ledger_predicts_the_measured_peak(row: dict[str, str]) -> None:
    micro, steps = int(row["micro_batch_size"]), int(row["gradient_accumulation_steps"])
    request = {
        "model": {"architecture": SIZES},
        "cluster": {"pools": [{"device": "cpu", "gpus_per_node": 2}]},
        "training": {
            "sequence_length": int(row["sequence_length"]), "global_batch_size": 2 * micro * steps,
            "precision": "bf16", "attention": "sdpa",
        },
        "backend": "deepspeed",
        "configuration": {
            "data_parallel": 2, "zero_stage": int(row["zero_stage"]), "micro_batch_size": micro,
            "recompute": row["recompute"],
            "communication_overlap": row["communication_overlap"] == "true",
        },
    }  # fmt: skip
    resolved = resolve(PlanRequest.read(request))
    assert resolved.configuration is not None
    ledger = memory_ledger(resolved.job, resolved.configuration, catalog.calibration(), oom_risk=0.01)
    readings = [float(row[name]) for name in ("peak_mib", "repeat_mib") if row[name]]
    assert min(readings) * (1 - TOLERANCE) <= ledger.allocated_bytes / 2**20 <= max(readings) * (1 + TOLERANCE)
