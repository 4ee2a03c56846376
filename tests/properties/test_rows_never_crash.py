"""Whatever a measurement file holds, every row is used or skipped with a one-line reason; the report can be written."""

import csv
import io
import json
import random
from importlib.resources import files
from pathlib import Path

import pytest

from planner.measurement import HEADER
from planner.validate import render, validate
from tests.scale import scaled

JUNK = (
    "", "0", "-1", "nan", "inf", "1e9", "1e30", "abc", "3.5", "999999", "7", "64", '"x', "²", "yes", "none", "fp8",
    "A100", "MI300X", "cpu", "qlora", "oom", "unknown", "selective", "Megatron-LM", "nanotron", "abacus",
    "1,000", "16 GB",
)  # fmt: skip
NOTES = (
    "lora_rank=0", "experts=8 experts_per_token=9", "stage_layers=1+2", "moe_layers=every:0", "activation=x",
    "lora_targets=+", "normalization=x", "head_dim=0", "head_dim=²", "first_stage_layers=99",
    "pipeline-model-parallel-layout=(((t",
    "kv_lora_rank=4 qk_nope_head_dim=1", "expert_tensor_parallel=3",
)  # fmt: skip


def spoiled(seed: int, count: int) -> str:
    """CSV text: rows of every shipped file with some cells replaced."""
    chance = random.Random(seed)
    rows: list[dict[str, str]] = []
    for file in sorted(Path(str(files("calibration_data") / "measurements")).glob("*.csv")):
        with file.open(encoding="utf-8", newline="") as text:
            every = list(csv.DictReader(text))
        rows += [dict(chance.choice(every)) for _ in range(count)]
    for row in rows:
        for key in chance.sample(HEADER, chance.randint(1, 4)):
            row[key] = chance.choice(JUNK)
        if chance.random() < 0.3:
            row["notes"] = f"{row['notes']} {chance.choice(NOTES)}"
    text_of = io.StringIO()
    writer = csv.DictWriter(text_of, HEADER)
    writer.writeheader()
    writer.writerows(rows)
    return text_of.getvalue()


@pytest.mark.parametrize("seed", range(scaled(3, 30)))
def test_spoiled_rows(tmp_path: Path, seed: int) -> None:
    (tmp_path / "spoiled.csv").write_text(spoiled(seed, 12), encoding="utf-8")
    report = validate(tmp_path)
    assert len({comparison.row.line for comparison in report.comparisons}) > 100
    for comparison in report.comparisons:
        assert comparison.used == (comparison.reason == "")
        assert "\n" not in comparison.reason
    for entry in json.loads(report.to_json())["sources"]:
        assert entry["rows"] == entry["used"] + sum(entry["skipped"].values())
    assert report.rows_csv().count("\n") > len(report.comparisons)
    assert render(report).renderables
