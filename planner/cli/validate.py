"""`meshwright validate`: predictions against published measurements and user reports."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from cost_models.errors import SpecError
from planner.cli import asked, output

Data = Annotated[Path | None, typer.Option("--data", help="Folder of measurement CSVs; the shipped ones if left out.")]
Rows = Annotated[Path | None, typer.Option("--rows", help="Write every row with its prediction as CSV.")]
Cases = Annotated[
    Path | None, typer.Option("--cases", help="Score answers to user reports instead: JSON lines, see docs/cases.md.")
]
Tracker = Annotated[
    Path | None, typer.Option("--tracker", help="Compare the memory ledger with rows of PyTorch's tracker instead.")
]


def validate_command(
    data: Data = None, rows: Rows = None, cases: Cases = None, tracker: Tracker = None, as_json: asked.Json = False
) -> None:
    """Predict every row of published measurements with the calibration of the settings, else the shipped one."""
    if tracker is not None:
        for flag, other in (("--data", data), ("--cases", cases)):
            if other is not None:
                raise SpecError(f"--tracker {tracker} and {flag} {other} exclude each other")
        _track(tracker, rows, as_json=as_json)
        return
    if cases is not None:
        if data is not None:
            raise SpecError(f"--cases {cases} and --data {data} exclude each other")
        _score(cases, rows, as_json=as_json)
        return
    from planner import calibrations
    from planner.validate import render, validate

    with output.progress("validating", quiet=False) as report:
        found = validate(data, calibrations.current(), progress=_counted(report))
    _write(rows, found.rows_csv)
    if as_json:
        output.print_json(found.to_dict())
    else:
        output.plain_console().print(render(found))


def _score(cases: Path, rows: Path | None, *, as_json: bool) -> None:
    """User reports: what was judged, verdicts and limits right, and what the others lack."""
    from planner import calibrations
    from planner.validate.case_table import render_cases
    from planner.validate.cases import score_cases

    with output.progress("answering", quiet=False) as report:
        found = score_cases(cases, calibrations.current(), progress=_counted(report))
    _write(rows, found.rows_csv)
    if as_json:
        output.print_json(found.to_dict())
    else:
        output.plain_console().print(render_cases(found))


def _track(tracker: Path, rows: Path | None, *, as_json: bool) -> None:
    """Rows of PyTorch's tracker: errors per phase and architecture."""
    from planner.validate.tracker_report import render_tracker, report

    with output.progress("comparing", quiet=False) as tell:
        found = report(tracker, progress=_counted(tell))
    _write(rows, found.rows_csv)
    if as_json:
        output.print_json(found.to_dict())
    else:
        output.plain_console().print(render_tracker(found))


def _write(rows: Path | None, text: Callable[[], str]) -> None:
    """Write the rows where they are asked for."""
    if rows is None:
        return
    try:
        rows.write_text(text(), encoding="utf-8")
    except OSError as error:
        raise SpecError(f"--rows {rows}: {error.strerror}") from error
    output.say(f"wrote {rows}")


def _counted(report: "output.Report | None") -> "output.Counted | None":
    """Rows done, as a share of all."""
    if report is None:
        return None
    return lambda done, total: report(f"row {done} of {total}")
