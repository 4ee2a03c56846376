"""The comparison and its statistics, with priced figures that are given, not computed."""

import csv
import hashlib
import io
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cost_models.calibration import Calibration, Factor
from cost_models.errors import MissingCalibration
from cost_models.ledger import MemoryLedger, StageMemory, TimeLedger
from cost_models.units import GIB
from planner.datasets.jobs import Case
from planner.measurement import HEADER
from planner.validate import ValidationReport, render, validate
from planner.validate.comparison import Pricing
from planner.validate.report import ROW_COLUMNS, percentile

INTERVALS = {
    "known_stack_runs": 5.0, "step_time_widening": 1.0,
    "step_time_low.unseen.80": 1 / 1.2, "step_time_high.unseen.80": 1.2,
    "step_time_low.unseen.90": 1 / 1.3, "step_time_high.unseen.90": 1.3,
}  # fmt: skip
CALIBRATION = Calibration(
    version="of-the-test", factors={key: Factor(value=value, source="this test") for key, value in INTERVALS.items()}
)
ROW: dict[str, Any] = {
    "source": "here", "ref": "org/repo@abc:table.md#L1", "model": "llama-2-7b", "layers": 32, "hidden": 4096,
    "heads": 32, "kv_heads": 32,
    "ffn_hidden": 11008, "vocab": 32000, "seq_len": 4096, "gpu": "A100-80GB-SXM", "n_gpus": 8,
    "gpus_per_node": 8, "framework": "FSDP", "precision": "bf16-mixed", "method": "full", "tp": 1, "pp": 1,
    "cp": 1, "ep": 1, "dp": 8,
    "zero_stage": 3, "offload": "none", "micro_batch": 1, "grad_accum": 4, "global_batch_seqs": 32,
    "recompute": "full", "flash_attn": "yes", "optimizer": "adamw",
}  # fmt: skip


@dataclass(frozen=True)
class Fixed:
    """Ledgers of fixed size: a step of 10 s, 40 GiB allocated in the step and 50 GiB while evaluating, of `usable`."""

    usable: float = 79 * GIB

    def time(self, case: Case) -> TimeLedger:
        """10 s."""
        return TimeLedger(step_seconds=10.0, exposed={}, hidden={}, stage_seconds=(), model_flops=1.0, peak_flops=1.0)

    def memory(self, case: Case) -> MemoryLedger:
        """Two stages, the first one the larger."""
        first = {"backward": {"weights": 30.0 * GIB, "activations": 10.0 * GIB}, "logits": {"eval": 50.0 * GIB}}
        last = {"backward": {"weights": 20.0 * GIB}, "logits": {"eval": 10.0 * GIB}}
        return MemoryLedger(
            stages=tuple(StageMemory(stage=i, instants=at, host_bytes=0) for i, at in enumerate((first, last))),
            phase_of={"backward": "step", "logits": "eval"}, context_bytes=1.0 * GIB, communicator_bytes=1.0 * GIB,
            allocated_quantile=1.1, fragmentation_median=1.25, fragmentation_quantile=1.5, usable_bytes=self.usable,
            host_usable_bytes=1e15, host_node_bytes=0,
        )  # fmt: skip

    @property
    def pricing(self) -> Pricing:
        """Both."""
        return Pricing(time=self.time, memory=self.memory)


def run(tmp_path: Path, *rows: dict[str, Any], pricing: Pricing | None = None) -> ValidationReport:
    """Validate a folder with one file of these rows."""
    text = io.StringIO()
    writer = csv.DictWriter(text, HEADER, lineterminator="\n")
    writer.writeheader()
    writer.writerows(ROW | row for row in rows)
    (tmp_path / "rows.csv").write_text(text.getvalue(), encoding="utf-8")
    return validate(tmp_path, CALIBRATION, pricing=pricing or Fixed().pricing)


def entry(report: ValidationReport, quantity: str) -> dict[str, Any]:
    """The one entry of a quantity."""
    (found,) = [entry for entry in report.sources() if entry["quantity"] == quantity]
    return found


def test_errors_of_step_time(tmp_path: Path) -> None:
    times = (8.0, 10.0, 12.5, 20.0)
    found = entry(run(tmp_path, *({"step_time_s": time} for time in times)), "step_time")
    assert (found["rows"], found["used"], found["skipped"]) == (4, 4, {})
    assert found["median_ape"] == pytest.approx((0.2 + 0.25) / 2)
    assert found["mape"] == pytest.approx((0.25 + 0 + 0.2 + 0.5) / 4)
    assert found["p90_ape"] == pytest.approx(0.425)
    assert (found["max_ape"], found["bias"]) == (0.5, pytest.approx(-0.1))
    assert found["coverage"] == {"80": 0.25, "90": 0.75}


def test_rates_are_turned_into_the_step_they_make(tmp_path: Path) -> None:
    rows = ({"tokens_per_s_per_gpu": 32 * 4096 / 8 / 8.0}, {"samples_per_s": 32 / 8.0})
    report = run(tmp_path, *rows)
    assert [row["measured"] for row in report.rows()] == [pytest.approx(8.0)] * 2


@pytest.mark.parametrize(
    ("mem_kind", "notes", "gigabytes", "predicted"),
    [
        ("allocated", "memory_unit=GiB", 40, 40.0), ("reserved", "memory_unit=GiB", 50, 50.0),
        ("nvidia-smi", "memory_unit=GiB", 52, 52.0), ("allocated", "memory_unit=GiB memory_ranks=last", 20, 20.0),
        ("allocated", "memory_unit=GiB memory_includes=eval", 50, 50.0),
        ("allocated", "memory_unit=GB", 40 * 1.073741824, 40.0),
    ],
)  # fmt: skip
def test_memory_is_predicted_in_the_kind_of_the_row(
    tmp_path: Path, mem_kind: str, notes: str, gigabytes: float, predicted: float
) -> None:
    report = run(tmp_path, {"peak_mem_gb": gigabytes, "mem_kind": mem_kind, "notes": notes})
    (row,) = report.rows()
    assert row["predicted"] == pytest.approx(predicted * GIB)
    assert row["error"] == pytest.approx(0.0, abs=1e-9)
    assert row["low_80"] < row["predicted"] < row["high_80"] < row["high_90"]


@pytest.mark.parametrize(
    ("usable", "verdict", "counts"),
    [
        (100, "fits", {"correct": 1, "missed_oom": 1, "at_risk": 0, "false_oom": 0}),
        (70, "at_risk", {"correct": 0, "missed_oom": 0, "at_risk": 2, "false_oom": 0}),
        (60, "does_not_fit", {"correct": 1, "missed_oom": 0, "at_risk": 0, "false_oom": 1}),
    ],
)
def test_verdicts(tmp_path: Path, usable: int, verdict: str, counts: dict[str, int]) -> None:
    report = run(tmp_path, {"outcome": "ok"}, {"outcome": "oom"}, pricing=Fixed(usable * GIB).pricing)
    found = entry(report, "verdict")
    assert {key: found[key] for key in counts} == counts
    assert {row["verdict"] for row in report.rows()} == {verdict}
    assert "mape" not in found


@pytest.mark.parametrize(
    ("changes", "quantity", "reason"),
    [
        ({"step_time_s": 8, "hidden": "", "model": "x"}, "step_time", "shape not stated"),
        ({"step_time_s": "NaN"}, "step_time", "unreadable cell: step_time_s"),
        ({"tokens_per_s_per_gpu": 100, "notes": "lengths=variable"}, "step_time", "sequence lengths vary"),
        ({"peak_mem_gb": 40, "mem_kind": "unknown"}, "peak_memory", "mem_kind unknown"),
        ({"peak_mem_gb": 40}, "peak_memory", "mem_kind not stated"),
        ({"peak_mem_gb": 40, "mem_kind": "reserved", "gpu": "A100"}, "peak_memory", "ambiguous device"),
        (
            {"peak_mem_gb": 40, "mem_kind": "allocated", "notes": "mtp-num-layers=1"},
            "peak_memory",
            "multi-token prediction heads not modelled for memory",
        ),
        ({"peak_mem_gb": 40, "mem_kind": "allocated", "recompute": ""}, "peak_memory", "recompute not stated"),
        ({"outcome": "ok", "gpu": "A100"}, "verdict", "ambiguous device"),
        (
            {"outcome": "ok", "precision": "float8 rowwise", "step_time_s": 1.0},
            "step_time",
            "fp8 recipe not modelled: rowwise",
        ),
    ],
)
def test_skipped_rows_are_counted_with_their_reason(
    tmp_path: Path, changes: dict[str, Any], quantity: str, reason: str
) -> None:
    report = run(tmp_path, changes)
    found = entry(report, quantity)
    assert (found["rows"], found["used"], found["skipped"]) == (1, 0, {reason: 1})
    if quantity != "verdict":
        assert found["mape"] is None
    assert reason in printed(report)


def test_an_ambiguous_device_is_good_enough_for_time(tmp_path: Path) -> None:
    assert entry(run(tmp_path, {"step_time_s": 10, "gpu": "A100"}), "step_time")["used"] == 1


def test_an_allocated_peak_needs_no_known_capacity(tmp_path: Path) -> None:
    row = {"peak_mem_gb": 40, "mem_kind": "allocated", "gpu": "A100"}
    assert entry(run(tmp_path, row), "peak_memory")["used"] == 1

    def by_capacity(case: Case) -> MemoryLedger:
        return replace(Fixed().memory(case), context_bytes=0.0, stages=_scaled(case.job.device.usable_memory_bytes))

    differing = Pricing(time=Fixed().time, memory=by_capacity)
    assert entry(run(tmp_path, row, pricing=differing), "peak_memory")["skipped"] == {"ambiguous device": 1}


def _scaled(size: float) -> tuple[StageMemory, ...]:
    return (StageMemory(stage=0, instants={"backward": {"weights": size}}, host_bytes=0.0),)


def test_peaks_of_several_kinds_are_told_apart(tmp_path: Path) -> None:
    notes = "allocated=40; process=52; memory_unit=GiB"
    report = run(tmp_path, {"peak_mem_gb": 50, "mem_kind": "reserved", "notes": notes})
    assert [(row["quantity"], row["measured"] / GIB) for row in report.rows()] == [
        ("peak_memory", 50), ("peak_reserved", 50), ("peak_allocated", 40), ("peak_device", 52),
    ]  # fmt: skip
    assert [row["error"] for row in report.rows()] == [pytest.approx(0.0, abs=1e-9)] * 4


def test_what_a_row_leaves_open_is_reported_as_scenarios(tmp_path: Path) -> None:
    def by_kernel(case: Case) -> MemoryLedger:
        size = 60.0 if case.configuration.attention == "eager" else 30.0
        return replace(Fixed().memory(case), stages=_scaled(size * GIB))

    pricing = Pricing(time=Fixed().time, memory=by_kernel)
    said = ((60, "auto"), (30, "yes"))
    rows = [{"peak_mem_gb": at, "mem_kind": "allocated", "flash_attn": kernel} for at, kernel in said]
    report = run(tmp_path, *({**row, "notes": "memory_unit=GiB"} for row in rows), pricing=pricing)
    found = entry(report, "peak_memory")
    assert found["open"] == {"used": 1, "covered": 1.0, "spread": 2.0}
    assert found["stated"] == {"used": 1, "median_ape": 0.0, "mape": 0.0}
    assert report.rows()[0]["scenarios"].startswith("attention=sdpa: ")
    assert report.rows()[1]["scenarios"] == ""


def test_a_term_without_a_constant_skips_the_row_and_says_so(tmp_path: Path) -> None:
    def uncalibrated(case: Case) -> TimeLedger:
        raise MissingCalibration("no calibration factor for gemm_efficiency: tried gemm_efficiency.z")

    report = run(tmp_path, {"step_time_s": 8}, pricing=Pricing(time=uncalibrated, memory=Fixed().memory))
    (reason,) = entry(report, "step_time")["skipped"]
    assert reason.startswith("not calibrated: no calibration factor for gemm_efficiency")


def test_the_json_holds_what_is_promised(tmp_path: Path) -> None:
    report = run(tmp_path, {"step_time_s": 8, "peak_mem_gb": 40, "mem_kind": "allocated", "outcome": "ok"})
    found = json.loads(report.to_json())
    errors = {
        "source",
        "quantity",
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
    counts = {"missed_oom", "false_oom", "at_risk", "correct", "confusion"}
    verdicts = {"source", "quantity", "rows", "used", "skipped"} | counts
    assert [(e["source"], e["quantity"]) for e in found["sources"]] == [
        ("here", "step_time"), ("here", "peak_memory"), ("here", "verdict"),
    ]  # fmt: skip
    assert [set(e) for e in found["sources"]] == [errors | {"classes", "width"}, errors, verdicts]
    assert set(found["sources"][0]["coverage"]) == {"80", "90"}
    assert found["calibration"] == "of-the-test"


def test_the_rows_are_csv(tmp_path: Path) -> None:
    report = run(tmp_path, {"step_time_s": 8, "optimizer": ""}, {"step_time_s": 8, "n_gpus": "eight"})
    used, skipped = csv.DictReader(io.StringIO(report.rows_csv()))
    assert tuple(used) == ROW_COLUMNS
    assert (used["used"], used["measured"], used["predicted"]) == ("True", "8.0", "10.0")
    assert used["assumed"].startswith("optimizer: not stated")
    assert (skipped["used"], skipped["reason"], skipped["line"]) == ("False", "unreadable cell: n_gpus", "3")
    assert report.problems == ("rows.csv line 3 column n_gpus: 'eight' is not a number",)


def printed(report: ValidationReport) -> str:
    """The report as a person sees it."""
    text = io.StringIO()
    Console(file=text, width=200).print(render(report))
    return text.getvalue()


def test_the_table_names_every_source_and_what_could_not_be_read(tmp_path: Path) -> None:
    text = printed(
        run(tmp_path, {"step_time_s": 8}, {"source": "there", "outcome": "oom"}, {"n_gpus": "x", "step_time_s": 1})
    )
    for part in ("here", "there", "25.0 %", "missed OOM", "unreadable cell: n_gpus", "rows.csv line 4 column n_gpus"):
        assert part in text


def test_progress_is_told(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    run(tmp_path, {"step_time_s": 8}, {"step_time_s": 9})
    validate(tmp_path, CALIBRATION, pricing=Fixed().pricing, progress=lambda done, of: seen.append((done, of)))
    assert seen == [(1, 2), (2, 2)]


def test_percentile_interpolates() -> None:
    assert percentile([1.0, 2.0, 3.0], 0.5) == 2.0
    assert percentile([1.0, 2.0], 0.9) == pytest.approx(1.9)
    assert percentile([4.0], 0.9) == 4.0


def test_the_report_says_whether_its_constants_have_seen_the_rows(tmp_path: Path) -> None:
    found = run(tmp_path, {"step_time_s": 10.0})
    assert found.fitted_files == ()
    assert "none of these files" in _rendered(found)
    digest = hashlib.sha256((tmp_path / "rows.csv").read_bytes()).hexdigest()
    seen = CALIBRATION.model_copy(update={"data": {"rows.csv": digest, "gone.csv": digest}})
    for where in (tmp_path, tmp_path / "rows.csv"):
        report = validate(where, seen, pricing=Fixed().pricing)
        assert report.to_dict()["fitted_files"] == ["rows.csv"]
        assert "were fitted on rows of 1 of these files" in _rendered(report)


def _rendered(report: ValidationReport) -> str:
    console = Console(width=300, record=True, file=io.StringIO())
    console.print(render(report))
    return console.export_text()
