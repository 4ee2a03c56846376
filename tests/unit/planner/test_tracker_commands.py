"""`validate --tracker` and `support` print what a program can read."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from planner.cli.app import app
from planner.errors import DatasetUnreadable
from planner.validate.tracker_report import report

ROWS = Path("calibration_data/tracker/layouts.csv")
KEYS = {
    "source",
    "quantity",
    "part",
    "rows",
    "used",
    "skipped",
    "median_ape",
    "mape",
    "p90_ape",
    "max_ape",
    "bias",
    "coverage",
}


def test_a_tracker_file_is_compared_in_total_and_per_phase() -> None:
    done = CliRunner().invoke(app, ["validate", "--tracker", str(ROWS), "--json"])
    assert done.exit_code == 0
    sources = json.loads(done.stdout)["sources"]
    assert [entry["part"] for entry in sources] == ["total", "forward", "backward", "step"]
    assert all(set(entry) == KEYS and entry["quantity"] == "tracker_memory" for entry in sources)
    assert sources[0]["max_ape"] < 0.005


def test_support_lists_architectures_and_their_variants() -> None:
    done = CliRunner().invoke(app, ["support", "--json"])
    assert done.exit_code == 0
    found = {entry["architecture"]: entry for entry in json.loads(done.stdout)["architectures"]}
    assert {"llama", "gpt_oss", "deepseek_v3", "gemma3_text"} <= set(found)
    assert "sdpa, padded" in found["qwen3"]["equal"]
    assert "sdpa, lora" in found["mixtral"]["equal"]


def test_another_file_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    other.write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(DatasetUnreadable, match="no column peak_total_gb"):
        report(other)
