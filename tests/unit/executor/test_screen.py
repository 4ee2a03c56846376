"""What the executor shows: other people's text is shown, never obeyed."""

import io

from rich.console import Console

from executor.report import Comparison, RunReport
from executor.screen import show_report

STRANGE = "[/red][bold]x"


def test_text_of_a_plan_is_no_markup() -> None:
    line = Comparison(
        quantity=STRANGE, unit="s", predicted=1.0, interval=(0.5, 2.0), measured=1.1, method=STRANGE, ratio=1.1,
        within_interval=True,
    )  # fmt: skip
    report = RunReport(
        plan_id=STRANGE, request_hash="0", outcome="ok", exit_status=0, error=STRANGE, processes=1, reported=1,
        steps_done=1, first_loss=1.0, last_loss=0.5, comparisons=(line,), resident={}, adaptations=(STRANGE,),
        notes=(STRANGE,), versions={}, directory=STRANGE,
    )  # fmt: skip
    console = Console(file=io.StringIO(), width=120)
    show_report(report, console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert shown.count(STRANGE) == 8
    assert f"Run of plan {STRANGE}: ok" in shown
