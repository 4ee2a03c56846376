"""From a request to a trained model: plan a job for two CPU processes, train it with DeepSpeed, compare."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = "executor/examples/train_llama.py"

pytestmark = [
    pytest.mark.torch,
    pytest.mark.launch,
    pytest.mark.xdist_group("deepspeed"),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
    pytest.mark.timeout(600),  # the first run on a machine compiles DeepSpeed's shared-memory collectives
]


def command(module: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    done = command("planner.cli", "plan", "-f", "examples/tiny-cpu.yaml", "--json")
    assert done.returncode == 0, done.stderr
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    path.write_text(done.stdout, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def run(plan: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    directory = tmp_path_factory.mktemp("run") / "out"
    done = command(
        "executor.cli", "run", str(plan), "--json", "--timed-steps", "8", "--out", str(directory),
        "--", SCRIPT, "--model", "examples/tiny-llama.json", "--sequence-length", "128",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["directory"] == str(directory)
    return report


def test_the_loss_falls(run: dict[str, Any]) -> None:
    assert run["outcome"] == "ok"
    assert run["reported"] == run["processes"] == 2
    assert run["last_loss"] < run["first_loss"] - 1.0


def test_the_run_used_the_plans_zero_stage_and_batch(run: dict[str, Any], plan: Path) -> None:
    configuration = json.loads(plan.read_text(encoding="utf-8"))["configuration"]
    config = json.loads((Path(run["directory"]) / "deepspeed.json").read_text(encoding="utf-8"))
    assert config["zero_optimization"]["stage"] == configuration["zero_stage"]
    assert config["train_micro_batch_size_per_gpu"] == configuration["micro_batch_size"]
    assert config["train_batch_size"] == 8


def test_predicted_stands_beside_measured(run: dict[str, Any], capsys: Any) -> None:
    lines = {line["quantity"]: line for line in run["comparisons"]}
    assert set(lines) == {"step_time", "peak_allocated", "peak_reserved"}
    for line in lines.values():
        assert line["measured"] > 0
        assert line["ratio"] == pytest.approx(line["measured"] / line["predicted"])
    assert lines["peak_allocated"]["method"].startswith("MemTracker")
    assert lines["peak_reserved"]["method"].startswith("VmHWM")
    with capsys.disabled():
        for line in run["comparisons"]:
            print(f"\n{line['quantity']}: predicted {line['predicted']:.4g}, measured {line['measured']:.4g}", end="")


def test_the_run_leaves_owner_only_files_and_no_process(run: dict[str, Any]) -> None:
    files = [path for path in Path(run["directory"]).rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"plan.json", "deepspeed.json", "report.json", "rank-0.json", "rank-1.json"}
    assert {path.stat().st_mode & 0o077 for path in files} == {0}
    left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if run["directory"] in _text(path)]
    assert left == []


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def test_a_plan_for_another_number_of_processes_is_refused(plan: Path) -> None:
    done = command("executor.cli", "run", str(plan), "--processes", "4", "--", SCRIPT)
    assert done.returncode == 2
    assert "the plan's world size is 2" in done.stderr
