"""Joining the processes' reports, and comparing them with the prediction."""

from pathlib import Path
from typing import Any

import pytest

from cost_models.errors import SpecError
from executor.measured import RankReport
from executor.report import compare, join, read_ranks
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
    step, allocated, reserved = compare(prediction(step_seconds=1.0, allocated_bytes=1000), (rank(0), slow))
    assert (step.measured, step.ratio, step.within_interval) == (2.1, 2.1, False)
    assert (allocated.measured, allocated.method, allocated.within_interval) == (1001, "tracker", True)
    assert (reserved.measured, reserved.within_interval) == (1501, False)


def test_the_step_time_is_the_median_of_the_timed_steps() -> None:
    step = compare(prediction(), (rank(0),))[0]
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


@pytest.mark.parametrize(
    ("outcomes", "status", "expected"),
    [
        (["ok", "ok"], 0, "ok"),
        (["ok", "ok"], 1, "error"),
        (["ok", "error"], 1, "error"),
        (["ok", "out_of_memory"], 1, "out_of_memory"),
        (["ok", "ok"], -9, "killed"),
    ],
)
def test_the_outcome_of_a_run(outcomes: list[str], status: int, expected: str) -> None:
    ranks = tuple(rank(number, outcome=outcome) for number, outcome in enumerate(outcomes))
    assert join(feasible(), ranks, exit_status=status, directory=Path("d")).outcome == expected


def test_losses_that_are_no_numbers_are_skipped() -> None:
    report = join(feasible(), (rank(0, losses=[None, 5.0, 4.0, None]),), exit_status=0, directory=Path("d"))
    assert (report.first_loss, report.last_loss) == (5.0, 4.0)


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
    (tmp_path / "reports" / "failure.json").write_text('{"rank": 1, "exit_code": -9}', encoding="utf-8")
    ranks = (rank(0, outcome="error", error="connection reset by peer"), rank(1, outcome="killed"))
    report = join(feasible(), ranks, exit_status=1, directory=tmp_path)
    assert (report.outcome, report.signal) == ("killed", 9)
    full = join(feasible(), (rank(0, outcome="out_of_memory"), ranks[1]), exit_status=1, directory=tmp_path)
    assert full.outcome == "out_of_memory"
