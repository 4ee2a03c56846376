"""`meshwright calibrate --site` and the calibration that the settings name."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cost_models.errors import SpecError
from planner import calibrations
from planner.cli.app import main
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
