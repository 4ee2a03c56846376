"""Joining the processes' reports, and comparing them with the prediction."""

import json
from pathlib import Path
from typing import Any

import pytest

from cost_models.errors import SpecError
from executor.errors import RunFailed
from executor.measured import RankReport
from executor.report import compare, join, read_ranks
from executor.run import check
from tests.unit.executor.plans import feasible, prediction


def rank(number: int, **changes: Any) -> RankReport:
    values: dict[str, Any] = {
        "rank": number,
        "world_size": 2,
        "device": "cpu",
        "outcome": "ok",
        "steps_done": 8,
        "times": {"warmup_steps": 3, "seconds": [1.0, 1.2, 9.0]},
        "allocated": {"bytes": 1000 + number, "method": "tracker"},
        "resident": {"step": {"bytes": 1500 + number, "method": "rss"}, "load": {"bytes": 7, "method": "rss"}},
        "losses": [5.0, 4.0],
        "versions": {"torch": "2"},
    }
    return RankReport.model_validate(values | changes)


def test_the_slowest_process_and_the_fullest_process_count() -> None:
    slow = rank(1, times={"warmup_steps": 3, "seconds": [2.0, 2.1, 2.2]})
    step, allocated, reserved = compare(
        prediction(step_seconds=1.0, allocated_bytes=1000), (rank(0), slow), oom_risk=0.01
    )
    assert (step.measured, step.ratio, step.within_interval) == (2.1, 2.1, False)
    assert (allocated.measured, allocated.method, allocated.within_interval) == (1001, "tracker", True)
    assert (reserved.measured, reserved.within_interval) == (1501, False)


def test_the_step_time_is_the_median_of_the_timed_steps() -> None:
    step = compare(prediction(), (rank(0),), oom_risk=0.01)[0]
    assert step.measured == 1.2
    assert step.method == "median of 3 steps after warm-up, slowest process"


def test_a_run_too_short_to_measure_says_so() -> None:
    short = rank(0, times={"warmup_steps": 3, "seconds": []}, allocated=None, resident={}, steps_done=2)
    report = join(feasible(), (short,), exit_status=0, directory=Path("d"))
    assert [line.measured for line in report.comparisons] == [None, None, None]
    assert any("ended after 2 steps" in note for note in report.notes)
    assert any("allocated memory was not measured" in note for note in report.notes)


def test_no_report_at_all_asks_for_the_instrument() -> None:
    report = join(feasible(), (), exit_status=0, directory=Path("d"))
    assert report.reported == 0
    assert report.processes == 2
    assert "executor.instrument.Instrument" in report.notes[0]
    assert {line.method for line in report.comparisons} == {"not measured"}


@pytest.mark.parametrize(
    ("outcomes", "status", "expected"),
    [
        (["ok", "ok"], 0, "ok"),
        (["ok", "ok"], 1, "error"),
        (["ok", "error"], 1, "error"),
        (["ok", "out_of_memory"], 1, "out_of_memory"),
        (["ok", "ok"], -9, "killed"),
        (["ok", "killed"], 1, "killed"),
        (["ok", "killed"], 0, "ok"),  # its disk was full
    ],
)
def test_the_outcome_of_a_run(outcomes: list[str], status: int, expected: str) -> None:
    ranks = tuple(rank(number, outcome=outcome) for number, outcome in enumerate(outcomes))
    assert join(feasible(), ranks, exit_status=status, directory=Path("d")).outcome == expected


def test_losses_that_are_no_numbers_are_skipped() -> None:
    report = join(feasible(), (rank(0, losses=[None, 5.0, 4.0, None]),), exit_status=0, directory=Path("d"))
    assert (report.first_loss, report.first_loss_step, report.last_loss, report.last_loss_step) == (5.0, 2, 4.0, 3)


def test_a_loss_that_is_no_number_is_no_healthy_run() -> None:
    good, bad = rank(0), rank(1, losses=[5.0, None], loss_steps=[7, 9])
    report = join(feasible(), (good, bad), exit_status=0, directory=Path("d"))
    assert (report.outcome, report.diverged_at, report.error) == ("diverged", 9, "the loss of step 9 is no number")
    crashed = join(feasible(), (good, bad), exit_status=1, directory=Path("d"))
    assert (crashed.outcome, crashed.diverged_at) == ("error", 9)
    assert any("the loss of step 9" in note for note in crashed.notes)


def test_a_loss_stands_beside_its_own_step() -> None:
    ahead = rank(0, losses=[5.0, 4.0, 3.0], loss_steps=[6, 7, 8], steps_done=8)
    report = join(feasible(), (ahead, rank(1, steps_done=5)), exit_status=1, directory=Path("d"))
    assert (report.steps_done, report.last_loss, report.last_loss_step) == (5, 3.0, 8)


@pytest.mark.parametrize(
    ("first", "other", "codes", "cause"),
    [
        # By time, whatever the rank.
        ({"outcome": "error", "error": "boom", "ended_at": 2.0}, {"outcome": "error", "error": "x", "ended_at": 1.0},
         [1, 1], 1),
        # A peer's end is found out before the one that ended has told: its words give it away.
        ({"outcome": "error", "error": "RuntimeError: [gloo/transport] Connection closed by peer", "ended_at": 1.0},
         {"outcome": "error", "error": "RuntimeError: boom at 8", "ended_at": 2.0}, [1, 1], 1),
        # torchrun has ended the others by SIGTERM.
        ({"outcome": "error", "error": "Connection closed by peer", "ended_at": 2.0},
         {"outcome": "error", "error": "boom", "ended_at": 1.0}, [-15, 1], 1),
        ({"outcome": "killed", "error": "no last report"}, {"outcome": "error", "error": "boom", "ended_at": 2.0},
         [-6, 1], 1),
        ({"outcome": "error", "error": "boom", "ended_at": 1.0}, {"outcome": "killed"}, [1, -9], 1),
        ({"outcome": "out_of_memory", "error": "full", "ended_at": 2.0}, {"outcome": "killed"}, [1, -9], 0),
    ],
)  # fmt: skip
def test_the_first_failure_is_the_cause_and_the_others_are_shown(
    tmp_path: Path, first: dict[str, Any], other: dict[str, Any], codes: list[int], cause: int
) -> None:
    (tmp_path / "reports").mkdir()
    told = [{"rank": number, "exit_code": code} for number, code in enumerate(codes)]
    (tmp_path / "reports" / "failure.json").write_text(json.dumps(told), encoding="utf-8")
    report = join(feasible(), (rank(0, **first), rank(1, **other)), exit_status=1, directory=tmp_path)
    assert report.failed_rank == cause
    assert report.error == (first, other)[cause].get("error")
    assert [line.split(":")[0] for line in report.other_failures] == [f"rank {1 - cause}"]


def test_an_operators_stop_reads_as_one() -> None:
    ranks = (rank(0, outcome="killed", error="no last report"), rank(1))
    report = join(feasible(), ranks, exit_status=-15, stopped_by=15, directory=Path("d"))
    assert (report.outcome, report.signal, report.error, report.other_failures) == ("stopped", 15, None, ())
    with pytest.raises(RunFailed, match=r"stopped by SIGTERM after 8 steps .* files are in d"):
        check(report)


def test_a_damaged_report_is_named(tmp_path: Path) -> None:
    (tmp_path / "rank-0.json").write_text('{"rank": ', encoding="utf-8")
    with pytest.raises(SpecError, match=r"rank-0\.json: not a report"):
        read_ranks(tmp_path)


def test_reports_are_read_back_in_order_of_rank(tmp_path: Path) -> None:
    for number in (10, 2):
        (tmp_path / f"rank-{number}.json").write_text(rank(number).model_dump_json(), encoding="utf-8")
    assert [found.rank for found in read_ranks(tmp_path)] == [2, 10]
    assert read_ranks(tmp_path / "none") == ()


def test_errors_of_the_others_do_not_hide_a_killed_process(tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "failure.json").write_text(
        '[{"rank": 0, "exit_code": 1}, {"rank": 1, "exit_code": -9}]', encoding="utf-8"
    )
    ranks = (rank(0, outcome="error", error="connection reset by peer"), rank(1, outcome="killed"))
    report = join(feasible(), ranks, exit_status=1, directory=tmp_path)
    assert (report.outcome, report.signal) == ("killed", 9)
    full = join(feasible(), (rank(0, outcome="out_of_memory"), ranks[1]), exit_status=1, directory=tmp_path)
    assert full.outcome == "out_of_memory"
