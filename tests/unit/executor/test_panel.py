"""The live panel."""

import io
from pathlib import Path

from rich.console import Console

from executor.hints import Hint
from executor.measured import MemoryPeak
from executor.panel import Panel, view
from tests.unit.executor.plans import feasible
from tests.unit.executor.test_hints import rank, split


def shown(text: object) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(text)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_predicted_stands_beside_measured() -> None:
    peak = MemoryPeak(bytes=2**31, method="")
    told = rank(split=split(communication=0.25), recent_seconds=0.5, resident={"step": peak}, losses=(3.0, 2.5))
    text = shown(view(feasible(), [told, rank(1, steps_done=19)], [Hint("communication", "too much of it")]))
    for line in (
        ("step", "1.000 s", "1.000 s"),  # the slowest process
        ("samples/s", "1.00", "4.00"),
        ("communication", "10.0%", "20.0%"),
        ("headroom", "8.000 GiB", "6.000 GiB"),
        ("loss", "2.5000"),
    ):
        assert any(all(part in row for part in line) for row in text.splitlines()), (line, text)
    assert "step 19" in text
    assert "hint: too much of it" in text


def test_a_loss_that_is_no_number_is_shown_with_its_step() -> None:
    text = shown(view(feasible(), [rank(losses=(3.0, None, 2.0)), rank(1)], []))
    assert "no number from step 2" in text


def test_output_goes_above_the_panel(tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), width=80)
    with Panel(feasible(), tmp_path, console, lambda ranks: ()) as panel:
        panel.write("step 1 loss [bold]4[/bold]\n")
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "step 1 loss [bold]4[/bold]" in text
    assert "no process has told anything yet" in text
