"""`meshwright-exec run` with scripts of our own: what ends badly is reported, and exits with 1."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.executor.plans import feasible

pytestmark = [
    pytest.mark.torch,
    pytest.mark.launch,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]
ROOT = Path(__file__).parents[3]

FAILS = """
import os, sys
from executor.instrument import Instrument
with Instrument.from_environment() as run:
    with run.step():
        pass
    run.record_loss(7.0)
    if os.environ["RANK"] == "1":
        raise MemoryError("no room for 3 GiB")
"""
BOOM = """
import os
import torch
import torch.distributed as dist
from executor.instrument import Instrument
dist.init_process_group("gloo")
with Instrument.from_environment() as run:
    for index in range(9):
        with run.step():
            if index == 1 and dist.get_rank() == 1:
                raise RuntimeError("boom at 2")
            dist.all_reduce(torch.ones(4))
"""
SILENT = "print('trained, and told nobody')\n"
SECRET = """
import json, os
from pathlib import Path
Path("seen.json").write_text(json.dumps(sorted(os.environ)))
"""


def launch(directory: Path, script: str, *options: str) -> tuple["subprocess.CompletedProcess[str]", Any]:
    (directory / "plan.json").write_text(feasible().to_json(), encoding="utf-8")
    (directory / "train.py").write_text(script, encoding="utf-8")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "executor.cli",
            "run",
            "plan.json",
            "--json",
            "--out",
            "out",
            *options,
            "--",
            "train.py",
        ],
        cwd=directory,
        env=os.environ | {"PYTHONPATH": str(ROOT), "MY_TOKEN": "secret", "OTHER_TOKEN": "secret"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done, json.loads(done.stdout) if done.stdout else None


def test_a_rank_out_of_memory_is_the_outcome_of_the_run(tmp_path: Path) -> None:
    done, report = launch(tmp_path, FAILS)
    assert done.returncode == 1
    assert report["outcome"] == "out_of_memory"
    assert report["error"] == "MemoryError: no room for 3 GiB"
    assert report["exit_status"] != 0
    last = done.stderr.splitlines()[-1]
    assert last.startswith(
        "meshwright-exec: the training ended with out_of_memory (rank 1: MemoryError: no room for 3 GiB)"
    )
    assert json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8")) == report


def test_the_rank_that_failed_first_is_blamed_and_the_others_are_shown(tmp_path: Path) -> None:
    done, report = launch(tmp_path, BOOM)
    assert done.returncode == 1
    assert (report["failed_rank"], report["error"]) == (1, "RuntimeError: boom at 2")
    assert report["other_failures"][0].startswith("rank 0: error: ")
    assert "(rank 1: RuntimeError: boom at 2)" in done.stderr.splitlines()[-1]


def test_a_script_without_the_instrument_runs_and_is_told(tmp_path: Path) -> None:
    done, report = launch(tmp_path, SILENT)
    assert done.returncode == 0, done.stderr
    assert "trained, and told nobody" in done.stderr
    assert report["outcome"] == "ok"
    assert report["reported"] == 0
    assert any("executor.instrument.Instrument" in note for note in report["notes"])


def test_a_training_inherits_only_what_it_needs_and_what_is_named(tmp_path: Path) -> None:
    done, _ = launch(tmp_path, SECRET, "--pass-env", "MY_TOKEN")
    assert done.returncode == 0, done.stderr
    seen = json.loads((tmp_path / "seen.json").read_text(encoding="utf-8"))
    assert "MY_TOKEN" in seen
    assert "OTHER_TOKEN" not in seen
    assert "MESHWRIGHT_PLAN" in seen


def test_a_run_directory_is_used_once(tmp_path: Path) -> None:
    launch(tmp_path, SILENT)
    done, _ = launch(tmp_path, SILENT)
    assert done.returncode == 2
    assert "is not empty" in done.stderr
