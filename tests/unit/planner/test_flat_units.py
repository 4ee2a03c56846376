"""litgpt on several devices: flat parameters whose gradients cover frozen weights and stay whole between steps."""

from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from cost_models import catalog
from planner.datasets.header import read_directory
from planner.datasets.jobs import case_of
from planner.measurement import Measurement
from planner.validate.comparison import shipped_pricing
from planner.validate.peaks import predicted_peak

LLAMA = "tutorials/resource-tables.md#L123"


@cache
def rows() -> tuple[Measurement, ...]:
    """The peaks of litgpt's tables that several devices share."""
    found = read_directory(Path(str(files("calibration_data") / "measurements" / "litgpt.csv"))).measurements
    return tuple(row for row in found if (row.n_gpus or 1) > 1 and row.peak_mem_gb and row.seq_len)


def predicted(row: Measurement, **changes: Any) -> float:
    """Its allocated peak, with facts of its framework changed. [bytes]"""
    case = case_of(row)
    case = replace(case, framework_changes={**case.framework_changes, **changes})
    return predicted_peak(row, shipped_pricing(catalog.calibration()).memory(case), "allocated")


def test_the_tables_rows_are_predicted() -> None:
    adapters = [row for row in rows() if row.method == "lora"]
    assert len(adapters) == 4
    for row in adapters:
        assert row.peak_mem_gb is not None
        assert predicted(row) == pytest.approx(row.peak_mem_gb * 1e9, rel=0.015)


def test_gradients_of_frozen_weights_are_whole() -> None:
    llama = next(row for row in rows() if row.ref.endswith(LLAMA))
    blocks = 13.016e9 - 2 * 32000 * 5120
    assert predicted(llama) - predicted(llama, flat_units=False) == pytest.approx(2 * blocks, rel=0.06)


def test_one_micro_batch_needs_no_whole_gradients() -> None:
    full = next(row for row in rows() if row.method == "full")
    once = full.model_copy(update={"grad_accum": 1, "global_batch_seqs": 2})
    shard, unit = 3.638e9 / 2, 12 * 4096**2  # the rest of the gradients; a layer's are fresh and added up in between
    assert 2 * shard < predicted(full) - predicted(once) < 2 * shard + 2 * 2 * 2 * unit
