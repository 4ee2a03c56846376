"""`meshwright validate`: predictions against published measurements, nothing fitted on them."""

from pathlib import Path
from typing import Annotated

import typer

from cost_models.errors import SpecError
from planner.cli import asked, output

Data = Annotated[Path | None, typer.Option("--data", help="Folder of measurement CSVs; the shipped ones if left out.")]
Rows = Annotated[Path | None, typer.Option("--rows", help="Write every row with its prediction as CSV.")]


def validate_command(data: Data = None, rows: Rows = None, as_json: asked.Json = False) -> None:
    """Predict every row of published measurements with the shipped calibration and print the errors."""
    from planner.validate import render, validate

    with output.progress("validating", quiet=as_json) as report:
        found = validate(data, progress=_counted(report))
    if rows is not None:
        try:
            rows.write_text(found.rows_csv(), encoding="utf-8")
        except OSError as error:
            raise SpecError(f"--rows {rows}: {error.strerror}") from error
        output.say(f"wrote {rows}")
    if as_json:
        output.print_json(found.to_dict())
    else:
        output.result_console().print(render(found))


def _counted(report: "output.Report | None") -> "output.Counted | None":
    """Rows done, as a share of all."""
    if report is None:
        return None
    return lambda done, total: report(f"row {done} of {total}")
