"""`validate --tracker` and `support` print what a program can read."""

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from planner.cli.app import app
from planner.errors import DatasetUnreadable
from planner.validate.tracker_report import report

ROWS = Path("calibration_data/tracker/layouts.csv")
PLAIN = Path("calibration_data/tracker/full_depth.csv")
"""Rows whose models are presets as they are."""
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


def _written(folder: Path, rows: list[dict[str, str]]) -> Path:
    path = folder / "rows.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*rows[0], "remark"])
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_spoiled_rows_and_unknown_models_are_skipped_with_a_reason(tmp_path: Path) -> None:
    with PLAIN.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))[:8]
    spoiled = [
        ("vocab", ""),
        ("mbs", "-1"),
        ("layers", "1e9"),
        ("model", "nobody/knows-this-one"),
        ("attn", "x"),
        ("seq", ""),
    ]
    for row, (column, cell) in zip(rows, spoiled, strict=False):
        row[column] = cell
    (total, *_) = report(_written(tmp_path, rows)).entries()
    assert (total["rows"], total["used"]) == (8, 2)
    assert sum(total["skipped"].values()) == 6
    assert not any("\n" in reason for reason in total["skipped"])


def test_a_model_that_no_preset_has_is_built_from_its_numbers(tmp_path: Path) -> None:
    with PLAIN.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["model"].startswith("llama3")][:1]
    assert rows
    found = report(_written(tmp_path, [row | {"model": "llama-of-our-house"} for row in rows])).rows
    assert [abs(row.error()) < 0.005 for row in found] == [True]


@pytest.mark.parametrize(
    ("column", "cell", "reason"),
    [
        ("peak_total_gb", "", "peak_total_gb is empty or zero"),
        ("peak_total_gb", "0", "peak_total_gb is empty or zero"),
        ("peak_fwd_gb", "inf", "peak_fwd_gb is no size: inf"),
        ("optimizer", "sophia", "optimizer not known: sophia"),
        ("precision", "int3", "precision not known: int3"),
        ("sharding(world)", "zero9:8", "sharding(world) not known: zero9:8"),
    ],
)
def test_cells_that_cannot_be_read_skip_their_row(tmp_path: Path, column: str, cell: str, reason: str) -> None:
    with PLAIN.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))[:2]
    rows[0][column] = cell
    found = report(_written(tmp_path, rows))
    assert found.skipped == {reason: 1}
    assert len(found.rows) == 1
    assert found.to_dict()["architectures"]


def test_a_header_without_rows_is_said(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(PLAIN.read_text(encoding="utf-8").partition("\n")[0] + "\n", encoding="utf-8")
    with pytest.raises(DatasetUnreadable, match="holds a header, but no row"):
        report(path)
