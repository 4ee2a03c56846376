"""`meshwright calibrate --site` and the calibration that the settings name."""

import csv
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cost_models.errors import SpecError
from planner import calibrations
from planner.cli.app import main
from planner.fitting.site_report import site_report
from planner.measurement import HEADER
from planner.planning import estimate
from planner.request import PlanRequest
from planner.settings import settings

ROW = {
    "source": "site", "model": "llama-2-7b", "layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 32,
    "ffn_hidden": 11008, "vocab": 32000, "seq_len": 4096, "gpu": "h100-sxm-80gb", "n_gpus": 8, "gpus_per_node": 8,
    "framework": "FSDP", "precision": "bf16-mixed", "method": "full", "tp": 1, "pp": 1, "cp": 1, "ep": 1, "dp": 8,
    "zero_stage": 3, "offload": "none", "recompute": "full", "flash_attn": "yes", "optimizer": "adamw",
}  # fmt: skip
REQUEST = {
    "model": {"preset": "llama-2-7b"},
    "cluster": {"pools": [{"device": "h100-sxm-80gb", "nodes": 1, "gpus_per_node": 8}]},
    "training": {"sequence_length": 4096, "global_batch_size": 64},
    "configuration": {
        "backend": "fsdp", "zero_stage": 3, "data_parallel": 8, "micro_batch_size": 2, "recompute": "full",
        "attention": "flash",
    },
}  # fmt: skip


@pytest.fixture(autouse=True)
def fresh_settings() -> Iterator[None]:
    settings.cache_clear()
    yield
    settings.cache_clear()


def site(folder: Path, runs: int, *, slower: float) -> Path:
    """Runs on H100 that took `slower` times what the shipped calibration says of this configuration."""
    step = estimate(PlanRequest.read(REQUEST)).prediction.time.step_seconds  # type: ignore[union-attr]
    with (folder / "site.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, HEADER)
        writer.writeheader()
        for run in range(runs):
            steps = 4 * (run + 1)
            row = {"ref": f"run {run}", "micro_batch": 2, "grad_accum": steps, "global_batch_seqs": 16 * steps}
            writer.writerow(ROW | row | {"step_time_s": slower * step * steps / 4})
    return folder


def test_a_sites_runs_change_its_plans(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "mine.yaml"
    before = estimate(PlanRequest.read(REQUEST))
    folder = site(tmp_path, 8, slower=1.3)
    assert main(["calibrate", "--site", str(folder), "--output", str(out), "--json"]) == 0
    changed = json.loads(capsys.readouterr().out)["changed"]
    assert all(key.endswith("@h100") or key.startswith("measured_runs.") for key in changed)
    monkeypatch.setenv("MESHWRIGHT_CALIBRATION", str(out))
    settings.cache_clear()
    after = estimate(PlanRequest.read(REQUEST))
    assert before.prediction is not None
    assert after.prediction is not None
    assert after.prediction.time.step_seconds > 1.1 * before.prediction.time.step_seconds
    assert after.provenance.calibration != before.provenance.calibration


def test_few_runs_widen_the_interval(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "mine.yaml"
    before = estimate(PlanRequest.read(REQUEST))
    assert main(["calibrate", "--site", str(site(tmp_path, 2, slower=1.3)), "--output", str(out)]) == 0
    assert "too few to move a constant" in capsys.readouterr().out
    monkeypatch.setenv("MESHWRIGHT_CALIBRATION", str(out))
    settings.cache_clear()
    after = estimate(PlanRequest.read(REQUEST))
    assert before.prediction is not None
    assert after.prediction is not None
    assert after.prediction.time.step_seconds == before.prediction.time.step_seconds
    low, high = after.prediction.time.interval_seconds["80"]
    assert low < before.prediction.time.interval_seconds["80"][0]
    assert high > before.prediction.time.interval_seconds["80"][1]


def test_a_calibration_that_is_none_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "x.yaml"
    monkeypatch.setenv("MESHWRIGHT_CALIBRATION", str(file))
    settings.cache_clear()
    with pytest.raises(SpecError, match=r"x\.yaml: No such file"):
        calibrations.current()
    file.write_text("version: 1\nfactors: {a: 3}\n")
    with pytest.raises(SpecError, match=r"x\.yaml"):
        calibrations.current()


def written(folder: Path, rows: list[dict[str, object]], name: str = "site.csv") -> Path:
    """A folder with these rows."""
    with (folder / name).open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, HEADER)
        writer.writeheader()
        writer.writerows(ROW | {"micro_batch": 2, "grad_accum": 4, "global_batch_seqs": 64} | row for row in rows)
    return folder


def moved(folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, Any], str]:
    """The JSON of an update, and what standard error says."""
    assert main(["calibrate", "--site", str(folder), "--json"]) == 0
    said = capsys.readouterr()
    return json.loads(said.out), said.err


STEP = 12.0
"""About what the shipped constants say of `written`'s configuration. [s]"""
UNTRUSTED: dict[str, list[float]] = {
    "contradicting": [2.0, 20.0] * 4,
    "unevenly": [STEP, 10 * STEP, STEP, 10 * STEP, STEP],
    "a million times too slow": [1e6 * STEP * (1 + 0.01 * i) for i in range(8)],
    "equal": [1.3 * STEP] * 8,
}


@pytest.mark.parametrize("name", UNTRUSTED)
def test_rows_that_tell_nothing_move_nothing_and_widen(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refs = [{} if name == "equal" else {"ref": f"run {i}"} for i in range(8)]
    rows: list[dict[str, object]] = [{**ref, "step_time_s": t} for ref, t in zip(refs, UNTRUSTED[name], strict=False)]
    found, said = moved(written(tmp_path, rows), capsys)
    assert found["nothing_moved"]
    assert "nothing moved" in said
    assert "site.csv" not in site_report(tmp_path).calibration.data
    changed = {key: f["value"] for key, f in found["changed"].items() if not key.startswith("measured_runs.")}
    assert set(changed) == {"step_time_widening@h100", "unlearned.step_seconds.fsdp@h100"}, "and plans say so"
    assert changed["step_time_widening@h100"] > 1.2


def test_random_times_move_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chance = random.Random(3)
    rows: list[dict[str, object]] = [
        {
            "ref": f"run {i}", "step_time_s": 10 ** chance.uniform(-0.3, 3), "grad_accum": i + 1,
            "global_batch_seqs": 16 * (i + 1),
        }
        for i in range(12)
    ]  # fmt: skip
    found, _ = moved(written(tmp_path, rows), capsys)
    assert found["nothing_moved"]
    assert set(found["changed"]) == {"step_time_widening@h100", "unlearned.step_seconds.fsdp@h100"}
    assert found["changed"]["step_time_widening@h100"]["value"] > 1.2


def test_every_row_that_is_not_used_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path, [], "empty.csv")
    written(tmp_path, [{"gpu": "Z900", "step_time_s": 3}, {"step_time_s": 1e-6}, {"peak_mem_gb": 40}])
    found, said = moved(tmp_path, capsys)
    files = {entry["file"]: entry for entry in found["files"]}
    assert files["empty.csv"] == {"file": "empty.csv", "used": 0, "unused": {}}
    assert sum(files["site.csv"]["unused"].values()) == 3
    assert "device not in the catalogue: Z900" in files["site.csv"]["unused"]
    assert "states no step time" in files["site.csv"]["unused"]
    assert "faster than the peak of its devices" in files["site.csv"]["unused"]
    assert "site.csv: 0 of 3 rows used" in said
    assert "empty.csv: 0 of 0 rows used" in said
    assert "nothing moved: every constant is the shipped one" in said


def test_a_sites_own_rows_are_predicted_with_its_constants(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, folder = tmp_path / "mine.yaml", tmp_path / "runs"
    folder.mkdir()
    site(folder, 8, slower=1.3)
    assert main(["calibrate", "--site", str(folder), "--output", str(out)]) == 0
    bias = []
    for file in (None, out):
        if file is not None:
            monkeypatch.setenv("MESHWRIGHT_CALIBRATION", str(file))
        settings.cache_clear()
        capsys.readouterr()
        assert main(["validate", "--data", str(folder), "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        bias.append(found["totals"][0]["bias"])
        assert found["fitted_files"] == ([] if file is None else ["site.csv"])
    assert abs(bias[1]) < 0.6 * abs(bias[0])
