"""The recalibration experiment: its rows go on where it stopped, its splits close the loop, its page says so."""

import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.recalibration import __main__ as command
from benchmarks.recalibration import measuring, rows
from benchmarks.recalibration.configurations import PROCESSES, Planned, planned
from benchmarks.recalibration.page import write
from benchmarks.recalibration.splits import coverage, judged, medians, run_of, split
from cost_models import catalog
from planner.request import PlanRequest
from planner.resolve import resolve

POOL: dict[str, Any] = {"device": catalog.device("cpu").model_dump(mode="json"), "gpus_per_node": PROCESSES}


def row(one: Planned, number: int) -> rows.Row:
    """A run on a machine whose products are 1.6 times as fast as shipped, with 5 % of noise."""
    run = run_of(blank(one), POOL)
    fast = catalog.calibration()
    fast = fast.scaled(
        {f"gemm_efficiency.cpu.{kind}": fast(f"gemm_efficiency.cpu.{kind}") * 1.6 for kind in ("fp32", "bf16")}, "fast"
    )
    noise = random.Random(number)
    memory, time = judged([run_with(run, 1.0, 1.0)], fast)
    return blank(one).model_copy(
        update={
            "step_seconds": time.predicted * noise.gauss(1.0, 0.05),
            "allocated_bytes": int(memory.predicted * noise.gauss(1.0, 0.01)),
        }
    )


def run_with(run: Any, size: float, seconds: float) -> Any:
    from dataclasses import replace

    return replace(run, allocated_bytes=size, step_seconds=seconds)


def blank(one: Planned) -> rows.Row:
    return rows.Row(
        name=one.name, request=one.request(), outcome="ok", step_seconds=None, step_spread=0.02, allocated_bytes=None,
        resident_bytes=None, first_loss=None, last_loss=None, cpu_seconds=None, versions={},
    )  # fmt: skip


def test_enough_configurations_of_every_kind() -> None:
    every = list(planned())
    assert len({one.name for one in every}) == len(every) >= 36
    for what in ("precision", "recompute", "micro_batch", "sequence", "shape", "accumulation"):
        assert len({getattr(one.setting, what) for one in every}) > 1
    assert {(one.backend, one.zero_stage) for one in every[:7]} == {(one.backend, one.zero_stage) for one in every}
    for one in every:
        resolve(PlanRequest.read({**one.request(), "cluster": {"pools": [POOL]}}))


@pytest.mark.parametrize("seed", [0, 1])
def test_a_closed_loop_predicts_the_rest(seed: int) -> None:
    runs = [run_of(row(one, number), POOL) for number, one in enumerate(planned())]
    found = split(runs, catalog.calibration(), seed)
    assert len(found.before) == len(found.after) == 2 * (len(runs) - 17)
    assert medians([found], "before", "time")[0] > 0.2
    assert medians([found], "after", "time")[0] < 0.1
    assert any(name.startswith("gemm_efficiency.cpu") for name in found.moved)
    held, of = coverage([found], "after", "time")
    assert held / of > 0.75
    again = split(runs, catalog.calibration(), seed)
    assert again == found


def test_rows_go_on_where_they_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "probe.yaml").write_text(yaml.safe_dump(POOL), encoding="utf-8")
    asked: list[str] = []

    def measure(one: Planned, pool: dict[str, Any], log: object) -> rows.Row:
        asked.append(one.name)
        return row(one, len(asked))

    monkeypatch.setattr(measuring, "measure", measure)
    folder = ["--data", str(tmp_path)]
    assert command.main(["run", "--most", "5", *folder]) == 0
    with (tmp_path / "rows.jsonl").open("a") as file:
        file.write('{"name": "cut of')
    assert command.main(["run", "--most", "4", *folder]) == 0
    assert len(set(asked)) == len(asked) == len(rows.read(tmp_path / "rows.jsonl")) == 9
    page = tmp_path / "page.md"
    assert write(tmp_path, page, splits=2) == 0
    text = page.read_text(encoding="utf-8")
    assert all(name in text for name in asked)
    assert "2 splits" in text


def test_there_is_no_page_without_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert write(tmp_path, tmp_path / "page.md") == 1
    assert "a split needs 3" in capsys.readouterr().err
