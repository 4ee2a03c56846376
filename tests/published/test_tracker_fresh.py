"""Rows made here and now: small models of odd sizes, which no committed row holds, against the ledger."""

import csv
import os
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from benchmarks.tracker.case import Case
from benchmarks.tracker.measure import measure
from benchmarks.tracker.rows import row, write
from planner.validate.tracker import compare, read

SMALL = {"num_hidden_layers": 3, "hidden_size": 640, "intermediate_size": 1792, "vocab_size": 5003}
GROUPED = {**SMALL, "num_attention_heads": 10, "num_key_value_heads": 2}
QUICK = [
    Case(model="qwen3-0.6b", overrides={**GROUPED, "head_dim": 96}, micro_batch=3, sequence=777),
    Case(
        model="mistral-7b",
        overrides={**GROUPED, "head_dim": 64, "sliding_window": 300},
        micro_batch=2,
        sequence=512,
        recompute="full",
        padded=True,
    ),
    Case(
        model="pythia-1b",
        overrides={**SMALL, "num_attention_heads": 5},
        micro_batch=5,
        sequence=384,
        lora="all-linear",
        rank=24,
    ),
]
MORE = [
    Case(model="gpt2", overrides={"n_layer": 3, "n_embd": 640, "n_head": 10}, micro_batch=7, sequence=511),
    Case(model="gemma-2-2b", overrides={**GROUPED, "head_dim": 80}, attention="eager", micro_batch=3, sequence=400),
    Case(model="phi-1.5", overrides={**SMALL, "num_attention_heads": 10}, micro_batch=3, sequence=600),
    Case(
        model="qwen3-30b-a3b",
        overrides={
            **GROUPED,
            "head_dim": 64,
            "num_experts": 12,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 320,
        },
        micro_batch=4,
        sequence=800,
    ),
    Case(model="falcon-7b", overrides={"num_hidden_layers": 3, "vocab_size": 5003}, micro_batch=2, sequence=300),
    Case(model="llama-2-7b", overrides={**GROUPED, "head_dim": 64}, precision="fp32-autocast-bf16", micro_batch=3),
    Case(model="llama-2-7b", overrides={**GROUPED, "head_dim": 64}, precision="fsdp-mp", sharding="fsdp2:4"),
    Case(model="llama-2-7b", overrides={**GROUPED, "head_dim": 64}, lora="all-linear", four_bit=True, micro_batch=4),
]
CASES = [*QUICK, *(MORE if os.environ.get("MESHWRIGHT_TEST_ALL") == "1" else ())]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_a_fresh_row_equals_the_ledger(case: Case, tmp_path: Path) -> None:
    found = row(case, measure(case))
    write(tmp_path / "rows.csv", [found])
    (again,) = read(tmp_path / "rows.csv")
    compared = compare(again)
    assert abs(compared.error("total")) < 0.005
    assert abs(compared.error("step")) < 0.005


def test_rows_have_the_common_header(tmp_path: Path) -> None:
    shipped = Path("calibration_data/tracker/full_depth.csv")
    with shipped.open(encoding="utf-8") as file:
        common = next(csv.reader(file))
    write(tmp_path / "rows.csv", [])
    header = (tmp_path / "rows.csv").read_text(encoding="utf-8").strip().split(",")
    assert header[: len(common)] == common
