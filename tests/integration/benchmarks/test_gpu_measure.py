"""The GPU script, tried on a CPU with tiny sizes: its rows are measurements, and it goes on where it was stopped."""

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.gpu import measure, runs
from planner.measurement import HEADER
from planner.validate import validate

pytestmark = pytest.mark.torch


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_without_a_gpu_it_says_so_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert measure.main(["--out", str(tmp_path / "rows")]) == 1
    assert "no CUDA device" in capsys.readouterr().err
    assert not (tmp_path / "rows").exists()


@pytest.fixture
def one_thread() -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)  # sizes are tiny: threads would only wait for each other
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
def test_rows_are_of_the_common_header_and_it_resumes(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    assert measure.main(["--tiny", "--minutes", "0", "--out", str(tmp_path)]) == 0
    assert not path.exists()
    assert measure.main(["--tiny", "--out", str(tmp_path)]) == 0
    names = [run.name for run in runs.planned(tiny=True)]
    found = rows(path)
    assert tuple(found[0]) == HEADER
    assert [row["ref"].rpartition(":")[2] for row in found] == names
    assert all(row["outcome"] == "ok" and float(row["step_time_s"]) > 0 for row in found)
    # Stopped in the middle of a line: the rows before stay, the rest is measured again.
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[:3]) + lines[3][:40], encoding="utf-8")
    assert measure.main(["--tiny", "--out", str(tmp_path)]) == 0
    assert [row["ref"].rpartition(":")[2] for row in rows(path)] == names
    assert path.read_text(encoding="utf-8").startswith("".join(lines[:3]))


def test_running_out_of_memory_is_a_row() -> None:
    run = next(runs.planned(tiny=False))
    shape = runs.SHAPES[run.model]
    cells = dict(zip(HEADER, measure.row(run, shape, runs.Measured("oom", 1), "L4", 22.0, "torch 2"), strict=True))
    assert (cells["outcome"], cells["step_time_s"], cells["peak_mem_gb"]) == ("oom", None, None)


def test_about_forty_runs_of_every_size_have_names_of_their_own() -> None:
    planned = list(runs.planned(tiny=False))
    assert 40 <= len(planned) <= 60
    assert len({run.name for run in planned}) == len(planned)
    assert {run.model for run in planned} == set(runs.SHAPES)
    assert {run.model for run in planned[:6]} == set(runs.SHAPES)


def test_validate_uses_every_row_of_a_known_gpu(tmp_path: Path) -> None:
    measured = runs.Measured("ok", 10**9, step_seconds=1.0, allocated=10**10, reserved=11 * 10**9, device=12 * 10**9)
    for run in runs.planned(tiny=False):
        cells = measure.row(run, runs.SHAPES[run.model], measured, "NVIDIA H200", 139.8, "torch 2.13.0")
        measure._append(tmp_path / "runs.csv", cells)
    summary = validate(tmp_path).sources()
    assert {part["rows"] for part in summary} == {len(list(runs.planned(tiny=False)))}
    assert all(part["skipped"] == {} for part in summary if part["quantity"] in {"step_time", "peak_memory"}), summary
