"""What is done after each ending, and that it ends."""

import io
from pathlib import Path
from typing import Any

import pytest

from executor.backends.deepspeed import name_for_all
from executor.errors import LossNotFinite, PlanRefused, ThroughputCollapsed
from executor.guards import WINDOW, Guards
from executor.launch import LaunchOptions, Script
from executor.measured import MemoryPeak
from executor.recovery import supervise as module
from executor.recovery.ladder import next_step
from executor.recovery.supervise import Policy, supervise
from executor.report import RunReport, join
from tests.unit.executor.plans import configuration, feasible, infeasible, prediction

CAP = 1000


def ended(outcome: str, **changes: Any) -> RunReport:
    report = join(feasible(), (), exit_status=0 if outcome == "ok" else 1, directory=Path())
    return report.model_copy(update={"outcome": outcome, "error": f"{outcome}!", **changes})


def held(size: int) -> dict[str, MemoryPeak]:
    return {"step": MemoryPeak(bytes=size, method="")}


def test_a_good_end_is_the_end() -> None:
    assert next_step(feasible(), ended("ok"), cap=CAP, again=False).action == "done"


@pytest.mark.parametrize(
    ("predicted", "at", "asked", "limit"),
    [
        (2000, 900, 200, 1000),  # as foretold: the next plan must fit the cap
        (800, 900, 300, 666),  # half as much again as foretold: the next plan's prediction is taken to be so too
        (800, 0, None, 799),  # nothing is known but that it did not fit
    ],
)
def test_memory_evidence_corrects_the_next_plan(predicted: int, at: int, asked: int | None, limit: int) -> None:
    plan = feasible(prediction=prediction(allocated_bytes=predicted))
    step = next_step(plan, ended("out_of_memory", resident=held(at), requested_bytes=asked), cap=CAP, again=False)
    assert (step.action, step.max_memory_bytes) == ("less_memory", limit)
    assert str(limit) in step.reason


@pytest.mark.parametrize("outcome", ["killed", "slow", "error"])
def test_once_more_and_no_further(outcome: str) -> None:
    report = ended(outcome, signal=15)
    assert next_step(feasible(), report, cap=CAP, again=False).action == "same_plan"
    assert next_step(feasible(), report, cap=CAP, again=True).action == "give_up"


def test_two_kills_look_like_memory() -> None:
    report = ended("killed", signal=9)
    assert next_step(feasible(), report, cap=CAP, again=True).action == "less_memory"


@pytest.mark.parametrize(("stage", "action"), [(0, "give_up"), (1, "more_precision"), (3, "more_precision")])
def test_deepspeed_goes_on_in_more_precision_from_shards_of_zero(stage: int, action: str) -> None:
    plan = feasible(configuration=configuration(precision="bf16", zero_stage=stage))
    assert next_step(plan, ended("diverged"), cap=CAP, again=False).action == action


def test_shards_are_found_under_either_precision(tmp_path: Path) -> None:
    (tmp_path / "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt").write_text("a")
    (tmp_path / "zero_pp_rank_1_mp_rank_00_optim_states.pt").write_text("b")
    name_for_all(tmp_path)
    name_for_all(tmp_path)
    assert (tmp_path / "zero_pp_rank_0_mp_rank_00_optim_states.pt").read_text() == "a"
    assert (tmp_path / "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt").read_text() == "b"
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize(("precision", "then"), [("fp16", "bf16"), ("bf16", "fp32"), ("fp32", None)])
def test_a_loss_that_is_no_number_asks_for_precision(precision: str, then: str | None) -> None:
    plan = feasible(configuration=configuration(backend={"name": "fsdp"}, precision=precision))
    step = next_step(plan, ended("diverged"), cap=CAP, again=False)
    assert (step.action, step.precision) == ("more_precision" if then else "give_up", then)


@pytest.mark.parametrize("attempts", [1, 3])
def test_nothing_is_tried_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attempts: int) -> None:
    found = _supervised(tmp_path, monkeypatch, attempts, ended("out_of_memory", resident=held(900), steps_done=4))
    assert len(found) == attempts + 1
    assert found[-1].step.action == "give_up"
    assert len((tmp_path / "out" / module.LOG).read_text().splitlines()) == attempts + 1


def test_it_ends_where_nothing_smaller_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.replanning.replan", lambda plan, **_: infeasible())
    found = _supervised(tmp_path, monkeypatch, 5, ended("out_of_memory"))
    assert len(found) == 1


def test_a_restart_without_a_checkpoint_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = io.StringIO()
    _supervised(tmp_path, monkeypatch, 1, ended("error"), said)
    assert "there is no checkpoint, so the script starts at step 0 again" in said.getvalue()
    kept = io.StringIO()
    (tmp_path / "again").mkdir()

    def keeping(prepared: Any, output: Any) -> RunReport:
        (tmp_path / "again" / "out" / "checkpoints" / "step-00000005").mkdir(parents=True, exist_ok=True)
        return ended("error")

    _supervised(tmp_path / "again", monkeypatch, 1, ended("error"), kept, keeping)
    assert "no checkpoint" not in kept.getvalue()


def test_an_operators_stop_is_not_gone_on_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = _supervised(tmp_path, monkeypatch, 5, ended("stopped", signal=2))
    assert [attempt.step.action for attempt in found] == ["give_up"]
    assert "stopped by signal 2" in found[0].step.reason


def test_a_directory_holds_one_run(tmp_path: Path) -> None:
    (tmp_path / "something").touch()
    policy = Policy(attempts=1, checkpoint_every=1, slowdown=0)
    with pytest.raises(PlanRefused, match="not empty"):
        supervise(feasible(), Script(path=tmp_path), LaunchOptions(directory=tmp_path), policy, io.StringIO())


def _supervised(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    attempts: int,
    report: RunReport,
    output: io.StringIO | None = None,
    run: module.Execute | None = None,
) -> tuple[module.Attempt, ...]:
    monkeypatch.setattr(module, "prepare_run", lambda plan, script, options: None)
    if report.resident:
        monkeypatch.setattr("planner.replanning.replan", lambda plan, **_: plan)
    return supervise(
        feasible(),
        Script(path=folder / "train.py"),
        LaunchOptions(directory=folder / "out", memory_cap=CAP),
        Policy(attempts=attempts, checkpoint_every=5, slowdown=0),
        output or io.StringIO(),
        run or (lambda prepared, output: report),
    )


def test_guards() -> None:
    guards = Guards(slowdown=3.0)
    guards.loss(4.0, 1)
    with pytest.raises(LossNotFinite, match="step 2 is nan"):
        guards.loss(float("nan"), 2)
    for step in range(WINDOW):
        guards.step(1.0, step)
    for step in range(WINDOW // 2):  # a save or two
        guards.step(60.0, step)
    with pytest.raises(ThroughputCollapsed, match="60"):
        guards.step(60.0, WINDOW)
    patient = Guards(slowdown=0.0)
    for seconds in (1.0,) * WINDOW + (100.0,) * WINDOW:
        patient.step(seconds, 1)
