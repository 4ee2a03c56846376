"""Peaks read from PyTorch's own memory tracker (torch 2.13 MemTracker and FSDPMemTracker under FakeTensorMode).

Rows are live tensor bytes of one steady step of transformers 5.24 models. No constant was fitted to them.
"""

from functools import cache
from importlib.resources import files
from pathlib import Path
from statistics import fmean

import pytest

from planner.validate import tracker

ROWS = Path(str(files("calibration_data") / "tracker"))


@cache
def compared(name: str) -> tuple[tracker.Compared, ...]:
    found, skipped = tracker.compared(tracker.read(ROWS / name))
    assert not skipped
    return tuple(found)


def label(index: int) -> str:
    row = tracker.read(ROWS / "full_depth.csv")[index]
    return "-".join(row[key][:14] for key in ("model", "layers", "precision", "mbs", "seq", "recompute", "attn"))


@pytest.mark.parametrize("index", range(len(tracker.read(ROWS / "full_depth.csv"))), ids=label)
def test_the_peak_of_a_whole_model_is_the_trackers(index: int) -> None:
    row = compared("full_depth.csv")[index]
    assert abs(row.error("total")) < 0.0005
    assert abs(row.error("backward")) < 0.0005


def test_the_optimizer_step_of_a_whole_model_is_the_trackers() -> None:
    for row in compared("full_depth.csv"):
        if "step" in row.tracked and "+" not in row.row["model"]:
            assert abs(row.error("step")) < 1e-4


def test_the_mean_error_over_whole_models_is_below_a_thousandth_of_a_percent() -> None:
    errors = [abs(row.error()) for row in compared("full_depth.csv")]
    assert len(errors) == 77
    assert fmean(errors) < 0.00001
