"""The command line at its edges: pipes, brackets, unknown keys, widths."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table
from yaml import safe_dump

from planner.cli import main
from planner.cli.output import plain_console
from planner.cli.render import estimate_view
from planner.cli.render.figures import count
from tests.unit.planner.plans import configuration, plan
from tests.unit.planner.requests import SMALL, changed
from tests.unit.planner.test_cli import FLAGS

ROOT = Path(__file__).parents[3]
Captured = pytest.CaptureFixture[str]


def piped(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content), encoding="utf-8"))


@pytest.mark.parametrize("yaml", [False, True])
def test_a_request_is_read_from_a_pipe(yaml: bool, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    request = {**SMALL, "configuration": {}}
    piped(monkeypatch, (safe_dump(request) if yaml else json.dumps(request)).encode())
    assert main(["estimate", "-f", "-", "--json"]) in (0, 3)
    assert json.loads(capsys.readouterr().out)["configuration"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": 1,\n"a": 2}', "standard input: line 2: a is given twice"),
        (b"a: 1\na: 2", "standard input: line 2: a is given twice"),
        (b"\xff", "standard input is not UTF-8 text"),
    ],
)
def test_what_is_wrong_with_a_pipe_names_it(
    content: bytes, message: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    piped(monkeypatch, content)
    assert main(["plan", "-f", "-"]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "training.global_batch_size=[96,160]"], "write one number, or {min: 96, max: 160} for a range"),
        (["--set", "training.global_batch_size=yes"], "training.global_batch_size: true is not an integer"),
        (["--set", "training.global_batch_size=1e2"], "text '1e2' is not an integer; write 100"),
        (["--set", "training.typo=1"], "training.typo: unknown key; keys here are method, sequence_length"),
        (["--set", "training.optimiser=sgd"], "unknown key; did you mean optimizer?"),
        (["--gpus", "10", "--nodes", "4"], "--gpus counts all nodes together, 8 or 12 would do"),
        (["--gpus", "3", "--nodes", "4"], "--gpus counts all nodes together, 4 would do"),
    ],
)
def test_what_to_write_instead(arguments: list[str], message: str, capsys: Captured) -> None:
    assert main(["plan", *FLAGS, *arguments]) == 2
    out, err = capsys.readouterr()
    assert message in err
    assert err.count("\n") == 1
    assert out == ""


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        *[(13_298_574_336, "13.3B"), (6_738_415_616, "6.74B"), (999_600_000, "1.00B"), (124_439_808, "124M")],
        *[(1_026_000_000_000, "1.03T"), (99_960_000, "100M"), (99_940_000, "99.9M"), (4_096, "4.10k"), (12, "12")],
    ],
)
def test_counts_have_three_figures(number: int, shown: str) -> None:
    assert count(number) == shown


def test_models_are_counted_for_people(capsys: Captured) -> None:
    assert main(["models", "llama-2-7b"]) == 0
    assert "6.74B" in capsys.readouterr().out


def test_columns_are_honoured_in_a_pipe(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["devices"]) == 0
    wide = max(map(len, capsys.readouterr().out.splitlines()))
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["devices"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 100 < wide


@pytest.mark.parametrize("verb", [["devices", "--json"], ["models"], ["--help"]])
def test_a_reader_that_leaves_is_no_news(verb: list[str]) -> None:
    command = [sys.executable, "-m", "planner.cli", *verb]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    said = process.stderr.read()
    process.wait(60)
    process.stderr.close()
    assert said == b""
    assert process.returncode == 0


def test_brackets_of_a_request_are_brackets() -> None:
    strange = "[/red] :smile:"
    backend = configuration().backend.model_copy(update={"release_range": strange})
    made: Any = plan(configuration().model_copy(update={"backend": backend}), optimality=None)
    console = Console(file=io.StringIO(), width=120, highlight=False, emoji=False)
    estimate_view(console, made)
    assert strange in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_file_that_is_wrong_is_named(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "r.json").write_text('{"a": 1,\n "b": NaN}')
    assert main(["plan", "-f", str(tmp_path / "r.json")]) == 2
    assert "r.json is not JSON: line 2: NaN is not a number" in capsys.readouterr().err
    (tmp_path / "r.json").write_text(json.dumps(changed("training.optimiser", "sgd", SMALL)))
    assert main(["plan", "-f", str(tmp_path / "r.json")]) == 2
    assert "did you mean optimizer?" in capsys.readouterr().err


def test_brackets_of_data_are_brackets(capsys: Captured) -> None:
    table = Table(title="[/red] rows")
    table.add_column("[/red] name")
    table.add_row("[/red] :smile:")
    plain_console().print(table)
    assert capsys.readouterr().out.count("[/red]") == 3


def test_a_plan_stands_for_its_request(tmp_path: Path, capsys: Captured) -> None:
    assert main(["plan", *FLAGS, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(found))
    assert main(["plan", "-f", str(path), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["provenance"] == found["provenance"]
    assert again["configuration"] == found["configuration"]
    assert main(["estimate", "-f", str(path), "--json"]) == 0
    priced = json.loads(capsys.readouterr().out)
    assert priced["configuration"] == found["configuration"]
    assert priced["prediction"] == found["prediction"]


def test_more_memory_than_the_device_has_is_asked_about(capsys: Captured) -> None:
    settings = ["--set", "cluster.pools.0.usable_memory=200GiB"]
    assert main(["estimate", *FLAGS, *settings, "--json"]) in (0, 3)
    found = json.loads(capsys.readouterr().out)
    assert found["prediction"]["memory"]["usable_bytes"] == 200 * 2**30
    said = [a for a in found["assumptions"] if a["key"] == "cluster.pools.0.usable_memory"]
    assert len(said) == 1
    assert "as if it had that much" in said[0]["from"]
