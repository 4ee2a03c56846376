"""The command: one-line errors, exit codes, the dry run."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.executor.plans import configuration, feasible, infeasible

ROOT = Path(__file__).parents[3]


def execute(*arguments: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "executor.cli", *arguments]
    return subprocess.run(
        command, cwd=cwd, env={"PYTHONPATH": str(ROOT), "PATH": "/bin"}, capture_output=True, text=True, check=False
    )


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "plan.json").write_text(feasible().to_json(), encoding="utf-8")
    (tmp_path / "none.json").write_text(infeasible().to_json(), encoding="utf-8")
    (tmp_path / "damaged.json").write_text('{"status": "optimal"', encoding="utf-8")
    (tmp_path / "other.json").write_text('{"hello": 1}', encoding="utf-8")
    fp16 = feasible(configuration=configuration(precision="fp16"))
    (tmp_path / "fp16.json").write_text(fp16.to_json(), encoding="utf-8")
    (tmp_path / "train.py").write_text("pass\n", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["run", "./absent/plan.json", "--", "train.py"], 2, "absent/plan.json: no such file or directory"),
        (["run", "plan-1", "--", "train.py"], 2, "the id of a plan needs --service"),
        (["run", "plan-1", "--service", "http://127.0.0.1:9", "--", "train.py"], 4, "does not answer"),
        (["run", "plan.json", "--service", "ftp://x", "--", "train.py"], 2, "'ftp://x' is no http or https address"),
        (["report", "--service", "ftp://x"], 2, "'ftp://x' is no http or https address"),
        (["probe", "--service", "ftp://x"], 2, "'ftp://x' is no http or https address"),
        (["run", "damaged.json", "--", "train.py"], 2, "is not JSON"),
        (["run", "other.json", "--", "train.py"], 2, "Field required"),
        (["run", "none.json", "--", "train.py"], 3, "status is infeasible"),
        (["run", "plan.json", "--", "absent.py"], 2, "absent.py: no such training script"),
        (["run", "plan.json", "--processes", "3", "--", "train.py"], 2, "world size is 2"),
        (["run", "fp16.json", "--dry-run", "--", "train.py"], 2, "fp16"),
    ],
)
def test_what_is_refused_takes_one_line(here: Path, arguments: list[str], code: int, message: str) -> None:
    done = execute(*arguments, cwd=here)
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith("meshwright-exec: ")
    assert done.stderr.count("\n") == 1
    assert message in done.stderr
    assert done.stdout == ""
    assert not (here / "meshwright-runs").exists()


def test_a_dry_run_prints_and_writes_nothing(here: Path) -> None:
    before = sorted(here.iterdir())
    done = execute("run", "plan.json", "--dry-run", "--json", "--", "train.py", "--lr", "1; rm -rf $HOME", cwd=here)
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert shown["argv"][-3:] == [str(here / "train.py"), "--lr", "1; rm -rf $HOME"]
    assert json.loads(shown["files"]["deepspeed.json"])["zero_optimization"]["stage"] == 2
    assert sorted(here.iterdir()) == before


def test_a_dry_run_of_an_edited_plan_says_so_and_a_variable_that_is_not_set(here: Path) -> None:
    changed = configuration(backend={"name": "ddp"}, zero_stage=0, micro_batch_size=1, gradient_accumulation_steps=2)
    plan = feasible().sealed().model_copy(update={"configuration": changed})
    (here / "edited.json").write_text(plan.to_json(), encoding="utf-8")
    done = execute("run", "edited.json", "--dry-run", "--json", "--pass-env", "AWAY", "--", "train.py", cwd=here)
    assert done.returncode == 0, done.stderr
    notes = json.loads(done.stdout)["notes"]
    assert done.stderr.splitlines() == [f"warning: {note}" for note in notes]
    assert [note.split(":")[0] for note in notes] == ["the plan was changed after it was made", "--pass-env AWAY"]


def test_a_report_to_nobody_exits_with_four(here: Path) -> None:
    done = execute("run", "id", "--service", "http://127.0.0.1:9", "--", "train.py", cwd=here)
    assert done.returncode == 4
    assert "does not answer" in done.stderr


def test_usage_errors_exit_with_two(here: Path) -> None:
    assert execute("run", cwd=here).returncode == 2
    assert execute("run", "plan.json", cwd=here).returncode == 2
