"""What trackers are told; their packages are stood in for, as none is needed."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import pytest

from executor.errors import PlanRefused
from executor.measured import MemoryPeak, RankReport, StepTimes
from executor.report import join
from executor.trackers import TRACKERS, Record, check_installed, record, track
from tests.unit.executor.plans import feasible


@pytest.fixture
def found(tmp_path: Path) -> Record:
    (tmp_path / "reports").mkdir()
    rank = RankReport(
        rank=0, world_size=1, device="cpu", outcome="ok", steps_done=2, times=StepTimes(warmup_steps=1, seconds=(2.0,)),
        allocated=MemoryPeak(bytes=1100, method="tracker"), resident={}, losses=(4.0, None, 3.0),
        versions={"torch": "2"},
    )  # fmt: skip
    (tmp_path / "reports" / "rank-0.json").write_text(rank.model_dump_json(), encoding="utf-8")
    report = join(feasible(), (rank,), exit_status=0, directory=tmp_path)
    return record(feasible(), report, "http://service/")


def test_predicted_stands_beside_measured_with_a_link_to_the_plan(found: Record) -> None:
    assert (found.figures["predicted/step_time"], found.figures["measured/step_time"]) == (1.0, 2.0)
    assert found.figures["measured/peak_allocated"] == 1100
    assert found.parameters["plan_url"] == "http://service/v1/plans/plan-1"
    assert found.parameters["configuration.zero_stage"] == "2"
    assert list(found.losses) == [(1, 4.0), (3, 3.0)]


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str) -> Any:
    module = MagicMock(spec=ModuleType(name), name=name)
    for attribute in ("init", "SummaryWriter", "start_run", "set_tracking_uri", "create_experiment",
                      "set_experiment", "log_params", "log_metrics",
                      "log_metric", "log_artifact"):  # fmt: skip
        setattr(module, attribute, MagicMock())
    monkeypatch.setitem(sys.modules, name, module)
    return module


def test_wandb_stays_offline(found: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_MODE", raising=False)
    wandb = stand_in(monkeypatch, "wandb")
    track(["wandb"], found)
    assert wandb.init.call_args.kwargs["mode"] == "offline"
    run = wandb.init.return_value
    assert [call.args[0] for call in run.log.call_args_list] == [{"loss": 4.0}, {"loss": 3.0}]
    assert run.summary.update.call_args.args[0] == found.figures
    run.finish.assert_called_once()


def test_mlflow_keeps_to_the_runs_directory_unless_told_otherwise(
    found: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    mlflow = stand_in(monkeypatch, "mlflow")
    track(["mlflow"], found)
    assert mlflow.set_tracking_uri.call_args.args[0] == f"sqlite:///{found.directory / 'mlflow.db'}"
    assert mlflow.log_metrics.call_args.args[0]["measured.step_time"] == 2.0


def test_tensorboard_gets_scalars(found: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    board = stand_in(monkeypatch, "torch.utils.tensorboard")
    track(["tensorboard"], found)
    writer = board.SummaryWriter.return_value.__enter__.return_value
    assert ("predicted/step_time", 1.0, 0) in [call.args for call in writer.add_scalar.call_args_list]


def test_a_package_that_is_missing_is_named_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for name in TRACKERS:
        with pytest.raises(PlanRefused, match=f"--tracker {name} needs"):
            check_installed([name])
