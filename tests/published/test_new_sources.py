"""Files of sources that nobody has seen: new names, spellings and columns are read, and little is said to be known."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from planner.validate import ValidationReport, render, validate

LLAMA = {
    "model": "meta-llama/Llama-2-7b-hf", "layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 32, "ffn_hidden": 11008,
    "vocab": 32000, "seq_len": 4096, "gpu": "A100-80GB-SXM", "gpu_mem_gb": 80, "n_gpus": 8, "gpus_per_node": 8,
    "precision": "bf16", "method": "full", "tp": 1, "pp": 1, "cp": 1, "ep": 1, "dp": 8, "zero_stage": 3,
    "micro_batch": 1, "grad_accum": 4, "global_batch_seqs": 32, "recompute": "full", "flash_attn": "FA2",
    "optimizer": "AdamW (fused)", "tokens_per_s_per_gpu": 3000, "peak_mem_gb": "40 GiB",
    "mem_kind": "max_memory_allocated", "outcome": "success",
}  # fmt: skip
"""A full-parameter run; sources below change what is theirs."""
SOURCES: dict[str, dict[str, Any]] = {
    "nanotron": {"framework": "nanotron 0.4", "tp": 2, "dp": 4, "zero_stage": 1, "recompute": "no"},
    "axolotl": {"framework": "axolotl (FSDP)", "optimizer": "adamw_torch_fused", "precision": "bf16 mixed"},
    "unsloth": {
        "framework": "unsloth", "method": "QLoRA", "precision": "nf4", "n_gpus": 1, "dp": 1, "zero_stage": 0,
        "global_batch_seqs": 4, "optimizer": "paged_adamw_8bit", "gpu": "RTX 4090", "gpu_mem_gb": 24,
        "recompute": "sometimes", "notes": "lora_rank=16 lora_targets=all-linear",
    },
    "colossal": {"framework": "ColossalAI HybridParallelPlugin", "tp": 4, "dp": 2, "zero_stage": 1},
    "accelerate": {"framework": "HF Accelerate + DeepSpeed", "offload": "cpu", "optimizer": "DeepSpeedCPUAdam"},
    "maxtext": {"framework": "MaxText (JAX, GPU)", "precision": "bfloat16", "recompute": "gradient checkpointing"},
    "lit-gpt": {"framework": "lit-gpt (Fabric FSDP)", "precision": "bf16-true", "method": "fine-tuning"},
    "swift": {"framework": "ms-swift + DeepSpeed ZeRO-3", "flash_attn": "2.6.3", "recompute": "True"},
    "internevo": {"framework": "InternEvo", "gpu": "A800-80GB", "tp": 1, "zero_stage": 1, "recompute": ""},
    "primus": {"framework": "Primus (Megatron-LM)", "gpu": "MI300X", "gpu_mem_gb": 192, "zero_stage": 1},
    "abacus": {"framework": "abacus 9", "precision": "mixed", "mem_kind": "nvml used", "recompute": "enabled"},
}  # fmt: skip
EXTRA = ("date", "container", "time_kind", "loss")


def table(source: str, changes: dict[str, Any], *, without: tuple[str, ...] = ()) -> str:
    row = LLAMA | {"source": source, "ref": f"org/{source}@abc:README.md#L1"} | changes
    text = io.StringIO()
    writer = csv.DictWriter(text, [*(key for key in row if key not in without), *EXTRA], extrasaction="ignore")
    writer.writeheader()
    writer.writerow(row | dict.fromkeys(EXTRA, "x"))
    return text.getvalue()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> ValidationReport:
    folder = tmp_path_factory.mktemp("new")
    for source, changes in SOURCES.items():
        (folder / f"{source}.csv").write_text(table(source, changes), encoding="utf-8")
    return validate(folder)


def entry(report: ValidationReport, source: str, quantity: str) -> dict[str, Any]:
    (found,) = [e for e in report.sources() if (e["source"], e["quantity"]) == (source, quantity)]
    return found


@pytest.mark.parametrize("source", [name for name in SOURCES if name != "unsloth"])
def test_times_of_new_sources_are_predicted(report: ValidationReport, source: str) -> None:
    found = entry(report, source, "step_time")
    assert (found["used"], found["skipped"]) == (1, {})
    assert found["width"]["80"] < found["width"]["90"]


def test_what_decides_nothing_is_skipped_with_its_reason(report: ValidationReport) -> None:
    assert entry(report, "unsloth", "step_time")["skipped"] == {"recompute not known: sometimes": 1}


@pytest.mark.parametrize("source", [name for name in SOURCES if name not in {"unsloth", "internevo", "accelerate"}])
def test_peaks_and_verdicts_of_new_sources_are_predicted(report: ValidationReport, source: str) -> None:
    for quantity in ("peak_memory", "verdict"):
        found = entry(report, source, quantity)
        assert (found["used"], found["skipped"]) == (1, {})


def test_a_stack_that_no_source_has_is_said_to_be_unseen_and_wide(report: ValidationReport) -> None:
    known, kin, unseen = (entry(report, source, "step_time") for source in ("lit-gpt", "nanotron", "abacus"))
    assert set(known["classes"]) == {"known_stack"}
    assert set(kin["classes"]) | set(unseen["classes"]) <= {"new_device", "unseen"}
    assert kin["width"]["80"] >= 1.4**2 * 0.99 > 1.3 * known["width"]["80"]
    text = [str(table.title) for table in render(report).renderables if hasattr(table, "title")]
    assert any("published runs do not pin" in title for title in text)


def test_missing_columns_are_read_as_empty(tmp_path: Path) -> None:
    gone = ("ep", "gpu_mem_gb", "vocab", "source", "global_batch_seqs", "mem_kind")
    (tmp_path / "short.csv").write_text(table("x", SOURCES["nanotron"], without=gone), encoding="utf-8")
    report = validate(tmp_path)
    assert entry(report, "short", "step_time")["used"] == 1
    assert entry(report, "short", "peak_memory")["skipped"] == {"mem_kind not stated": 1}
    (said,) = report.problems
    assert said.startswith("short.csv: no column source, ")
    json.loads(report.to_json())
