"""Readers of the common header: what is read, what is refused, and the words in which it is."""

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from planner.datasets.header import read_directory
from planner.datasets.notes import TOKENS, read_notes
from planner.errors import DatasetUnreadable
from planner.measurement import HEADER

ROOT = Path(__file__).parents[3]
ROW: dict[str, Any] = {
    "source": "here", "ref": "org/repo@abc:table.md#L1", "model": "llama-2-7b", "layers": 32, "hidden": 4096,
    "heads": 32, "kv_heads": 32,
    "ffn_hidden": 11008, "vocab": 32000, "seq_len": 4096, "gpu": "A100-80GB-SXM", "n_gpus": 8,
    "gpus_per_node": 8, "framework": "FSDP", "precision": "bf16-mixed", "method": "full", "tp": 1, "pp": 1,
    "cp": 1, "ep": 1, "dp": 8,
    "zero_stage": 3, "offload": "none", "micro_batch": 1, "grad_accum": 4, "global_batch_seqs": 32,
    "recompute": "full", "flash_attn": "yes", "optimizer": "adamw", "step_time_s": 8.0, "outcome": "ok",
}  # fmt: skip


def table(*rows: dict[str, Any], header: tuple[str, ...] = HEADER) -> str:
    """CSV text of rows that differ from ROW by what is given."""
    text = io.StringIO()
    writer = csv.DictWriter(text, header, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(ROW | row for row in rows)
    return text.getvalue()


def test_a_row_is_read_as_printed(tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text(table({"vpp": ""}), encoding="utf-8")
    (row,) = read_directory(tmp_path).measurements
    assert (row.file, row.line, row.source) == ("one.csv", 2, "here")
    assert (row.layers, row.step_time_s, row.vpp, row.mem_kind) == (32, 8.0, None, "")
    assert row.states_time
    assert row.states_outcome
    assert not row.states_memory


def test_order_extra_columns_and_a_byte_order_mark_do_not_matter(tmp_path: Path) -> None:
    text = table({}, header=("remark", *reversed(HEADER)))
    (tmp_path / "one.csv").write_text("\ufeff" + text, encoding="utf-8")
    assert read_directory(tmp_path / "one.csv").measurements[0].hidden == 4096


@pytest.mark.parametrize(
    ("cell", "value", "complaint"),
    [
        ("n_gpus", "eight", "'eight' is not a number"),
        ("step_time_s", "NaN", "'NaN' is not finite"),
        ("step_time_s", "inf", "'inf' is not finite"),
        ("hidden", "-4096", "'-4096' is not positive"),
        ("layers", "0", "'0' is not positive"),
        ("tp", "1.5", "'1.5' is not a whole number"),
    ],
)
def test_a_cell_that_cannot_be_read_is_named_and_its_row_kept(
    tmp_path: Path, cell: str, value: str, complaint: str
) -> None:
    (tmp_path / "bad.csv").write_text(table({}, {cell: value}), encoding="utf-8")
    dataset = read_directory(tmp_path)
    assert dataset.problems == (f"bad.csv line 3 column {cell}: {complaint}",)
    assert [row.unreadable for row in dataset.measurements] == [(), (cell,)]


@pytest.mark.parametrize(
    ("cell", "printed", "value"),
    [
        ("n_gpus", "1,024", 1024),
        ("seq_len", "8k", 8192),
        ("tokens_per_s_per_gpu", "~ 12,345.6", 12345.6),
        ("step_time_s", "850 ms", 0.85),
        ("peak_mem_gb", "38.5 GiB", 38.5),
        ("gpu_mem_gb", "80GB", 80.0),
        ("params_b", "7B", 7.0),
    ],
)
def test_numbers_are_read_as_tables_print_them(tmp_path: Path, cell: str, printed: str, value: float) -> None:
    (tmp_path / "new.csv").write_text(table({cell: printed}), encoding="utf-8")
    dataset = read_directory(tmp_path)
    assert dataset.problems == ()
    assert getattr(dataset.measurements[0], cell) == pytest.approx(value)


def test_a_unit_in_the_cell_of_a_peak_is_its_unit(tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text(table({"peak_mem_gb": "38.5 GiB"}, {"peak_mem_gb": "38.5GB"}), encoding="utf-8")
    assert [row.facts["memory_unit"] for row in read_directory(tmp_path).measurements] == ["GiB", "GB"]


def test_a_missing_column_is_empty_and_said(tmp_path: Path) -> None:
    header = tuple(key for key in HEADER if key not in {"vpp", "source"})
    (tmp_path / "new-stack.csv").write_text(table({}, header=header), encoding="utf-8")
    dataset = read_directory(tmp_path)
    assert dataset.problems == ("new-stack.csv: no column source, vpp: read as empty",)
    assert [(row.source, row.vpp) for row in dataset.measurements] == [("new-stack", None)]


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_other_delimiters(tmp_path: Path, delimiter: str) -> None:
    text = table({}).replace(",", delimiter)
    (tmp_path / "one.csv").write_text(text, encoding="utf-8")
    assert read_directory(tmp_path).measurements[0].hidden == 4096


@pytest.mark.parametrize(("text", "outcome"), [("OOM (CUDA)", "oom"), ("success", "ok"), ("hung", "hung")])
def test_outcomes(tmp_path: Path, text: str, outcome: str) -> None:
    (tmp_path / "one.csv").write_text(table({"outcome": text}), encoding="utf-8")
    assert read_directory(tmp_path).measurements[0].outcome == outcome


def test_a_row_of_another_width_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text(table({}) + "only,three,cells\n", encoding="utf-8")
    assert read_directory(tmp_path).problems == (f"bad.csv line 3: 3 cells under a header of {len(HEADER)}",)


def test_a_file_of_another_header_is_named_beside_a_good_one(tmp_path: Path) -> None:
    (tmp_path / "good.csv").write_text(table({}), encoding="utf-8")
    (tmp_path / "other.csv").write_text("gpu,price\nA100,2\n", encoding="utf-8")
    dataset = read_directory(tmp_path)
    assert len(dataset.measurements) == 1
    assert dataset.ignored == ("other.csv: not the common header: column model is missing",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no file of the common header"),
        (b"a,b\n1,2\n", "column model is missing"),
        (b"\xff\xfe\x00\x01", "bad.csv: not UTF-8 text"),
        (b'"' + b"x" * 200_000, "bad.csv line 1: not CSV"),
    ],
)
def test_a_folder_without_a_readable_file_is_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "bad.csv").write_bytes(content)
    with pytest.raises(DatasetUnreadable) as caught:
        read_directory(tmp_path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_folder_and_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(DatasetUnreadable, match="no such folder"):
        read_directory(tmp_path / "nowhere")
    with pytest.raises(DatasetUnreadable, match=r"holds no \.csv file"):
        read_directory(tmp_path)


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("", {}),
        ("anything at all; colour=red", {}),
        ("lora_rank=64, lora_targets=q_proj+v_proj", {"lora_rank": "64", "lora_targets": "q_proj+v_proj"}),
        ("sequence-parallel; untie-embeddings-and-output-weights", {"sequence_parallel": "yes", "tied": "no"}),
        ("peak in GiB over train+eval", {"memory_unit": "GiB", "memory_includes": "eval"}),
        ("GB=1e9 on the LAST rank only", {"memory_unit": "GB", "memory_ranks": "last"}),
        ("attention-backend=unfused attention=flash", {"attention": "flash"}),
        ("layer-freq=([0]*3+[1]*12)", {"moe_layers": "last:12"}),
        ("sharding=FULL_SHARD; torch.compile=yes", {"compile": "yes"}),
    ],
)
def test_notes(text: str, facts: dict[str, str]) -> None:
    assert read_notes(text) == facts


def test_the_list_of_tokens_is_published() -> None:
    readme = (ROOT / "calibration_data" / "measurements" / "README.md").read_text(encoding="utf-8")
    assert [token for token in TOKENS if f"| `{token}` |" not in readme] == []
