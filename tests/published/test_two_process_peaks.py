"""Peaks of real runs on two CPU processes against the ledger, which is fitted to none of them.

The models are small, so that what back ends hold beside weights and activations decides: copies of gradients while they
are reduced, messages of gathered weights, second copies of the weights.
"""

import csv
import statistics
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from cost_models import catalog
from cost_models.memory import memory_ledger
from planner.request import PlanRequest
from planner.resolve import resolve

ROWS = Path(__file__).parent / "data" / "two_process_peaks.csv"
TOLERANCE, MEDIAN = 0.03, 0.003


@cache
def rows() -> list[dict[str, str]]:
    lines = [line for line in ROWS.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))


@cache
def error(index: int) -> float:
    """Relative, of the prediction."""
    row: dict[str, Any] = {name: int(text) if text.isdecimal() else text for name, text in rows()[index].items()}
    sizes = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size")
    micro, steps = row["micro_batch_size"], row["gradient_accumulation_steps"]
    request = {
        "model": {"architecture": {**{name: row[name] for name in sizes}, "tie_word_embeddings": False}},
        "cluster": {"pools": [{"device": "cpu", "gpus_per_node": 2}]},
        "training": {
            "sequence_length": row["sequence_length"], "global_batch_size": 2 * micro * steps,
            "precision": row["precision"], "attention": "sdpa",
        },
        "backend": row["backend"],
        "configuration": {
            "data_parallel": 2, "zero_stage": row["zero_stage"], "micro_batch_size": micro,
            "recompute": row["recompute"], "cross_entropy": "eager",
        },
    }  # fmt: skip
    resolved = resolve(PlanRequest.read(request))
    assert resolved.configuration is not None
    ledger = memory_ledger(resolved.job, resolved.configuration, catalog.calibration(), oom_risk=0.01)
    return ledger.allocated_bytes / 2**20 / float(row["peak_mib"]) - 1


@pytest.mark.parametrize("index", range(len(rows())), ids=lambda index: "-".join(list(rows()[index].values())[:-1]))
def test_the_ledger_predicts_the_measured_peak(index: int) -> None:
    assert abs(error(index)) < TOLERANCE


def test_the_middle_error_is_below_a_third_of_a_per_cent() -> None:
    assert statistics.median(abs(error(index)) for index in range(len(rows()))) < MEDIAN
