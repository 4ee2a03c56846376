"""The instrument in a loop without a framework: order of steps, reports of good and bad endings."""

import errno
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from executor import environment
from executor.instrument import Instrument
from executor.measured import RankReport

pytestmark = [pytest.mark.torch, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]


def train(run: Instrument, steps: int) -> None:
    import torch

    layer = torch.nn.Linear(128, 128)
    for _ in range(steps):
        with run.step():
            loss = layer(torch.ones(4, 128)).square().mean()
            loss.backward()
        run.record_loss(float(loss.detach()))


def report_in(directory: Path) -> RankReport:
    return RankReport.model_validate_json((directory / "rank-0.json").read_bytes())


def test_needed_steps_measure_everything(tmp_path: Path) -> None:
    with Instrument(report_directory=tmp_path, warmup_steps=1, timed_steps=4) as run:
        train(run, run.needed_steps)
    report = report_in(tmp_path)
    assert (report.outcome, report.steps_done, len(report.times.seconds)) == ("ok", 9, 4)
    assert set(report.resident) == {"load", "first_step", "step"}
    assert report.allocated is not None
    assert report.allocated.bytes >= 2 * 128 * 128 * 4
    assert len(report.losses) == 9
    assert report.split is not None


def test_the_hooks_cost_far_less_than_a_hundredth_of_a_usual_step(tmp_path: Path) -> None:
    with Instrument(report_directory=tmp_path, warmup_steps=1, timed_steps=1) as run:
        train(run, 400)
    # Of a step of 50 ms, which is a short one; the writing of reports is held to half a per cent by itself.
    assert run._hooks / 400 < 0.01 * 0.05


def test_a_short_training_reports_what_it_has(tmp_path: Path) -> None:
    with Instrument(report_directory=tmp_path, warmup_steps=1, timed_steps=4) as run:
        train(run, 2)
    report = report_in(tmp_path)
    assert report.allocated is None
    assert report.times.seconds == ()


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(RuntimeError("broke\nsecond line"), "error"), (MemoryError("no room"), "out_of_memory")],
)
def test_a_failed_training_is_reported_and_still_fails(tmp_path: Path, error: Exception, outcome: str) -> None:
    with pytest.raises(type(error)), Instrument(report_directory=tmp_path):
        raise error
    report = report_in(tmp_path)
    assert report.outcome == outcome
    assert report.error == f"{type(error).__name__}: {str(error).splitlines()[0]}"


def test_a_loss_that_is_no_number_is_valid_json(tmp_path: Path) -> None:
    with Instrument(report_directory=tmp_path) as run:
        run.record_loss(float("nan"))
    assert json.loads((tmp_path / "rank-0.json").read_text(encoding="utf-8"))["losses"] == [None]


def test_without_a_launcher_nothing_is_written(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.delenv(environment.REPORT, raising=False)
    monkeypatch.chdir(tmp_path)
    with Instrument.from_environment() as run:
        train(run, 1)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_full_ends_the_measurement_and_not_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("executor.instrument.write_text", full)
    with Instrument(report_directory=tmp_path) as run:
        train(run, 2)
    assert len(run.losses) == 2
    assert capsys.readouterr().err.count("no space left on device") == 1


def test_a_loss_may_be_a_tensor_that_requires_a_gradient(tmp_path: Path) -> None:
    import torch

    with Instrument(report_directory=tmp_path) as run:
        with run.step():
            loss = torch.ones(1, requires_grad=True).sum()
        run.record_loss(loss)  # warnings are errors here
    report = report_in(tmp_path)
    assert (report.losses, report.loss_steps) == ((1.0,), (1,))
