"""`meshwright certificate` and `meshwright verify`: hand out the proof of a plan, and check one."""

from pathlib import Path
from typing import Annotated, Any

import typer

from cost_models.errors import SpecError
from planner.cli import asked, output


def certificate_command(
    plan: Annotated[
        Path, typer.Argument(metavar="PLAN", help="plan.json, as `plan --json` prints it; - reads it from a pipe.")
    ],
    out: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write to this file instead of standard output.")
    ] = None,
) -> None:
    """Write what a sceptic needs to check a plan: its question, its space, why every other row lost, its models."""
    from planner.cli.export import read_plan

    certify(read_plan(plan), out)


def certify(plan: Any, path: Path | None) -> None:
    """Write the certificate of a plan to a file, or to standard output.

    Raises:
        SpecError: the file cannot be written.
    """
    from planner.calibrations import current
    from planner.certifying import issue

    text = issue(plan, current()).to_json()
    if path is None:
        output.print_text(text)
        return
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SpecError(f"{path}: {error.strerror}") from error
    output.say(f"wrote {path}")


def verify_command(
    certificate: Annotated[
        Path, typer.Argument(metavar="CERTIFICATE", help="As `certificate` wrote it; - for a pipe.")
    ],
    as_json: asked.Json = False,
) -> None:
    """Check a certificate: identity, legality, feasibility by unrounded formulas, and that nothing is better.

    Nothing of the search is trusted: rows are enumerated and priced anew and discarded by bounds and an exact search
    that share no code with it; CP-SAT solves the models again. Any difference fails with exit code 1.
    """
    from planner.calibrations import current
    from planner.verifying import verify

    checks = verify(_text(certificate), current())
    passed = all(check.passed for check in checks)
    if as_json:
        output.print_json({"verified": passed, "checks": [_entry(check) for check in checks]})
    else:
        for check in checks:
            output.print_text(f"{'ok  ' if check.passed else 'FAIL'}  {check.name:<12}  {check.text}\n")
            for fault in check.faults[:10]:
                output.print_text(f"      {fault}\n")
        output.print_text("verified\n" if passed else "not verified\n")
    if not passed:
        raise typer.Exit(1)


def _entry(check: Any) -> dict[str, Any]:
    return {"name": check.name, "text": check.text, "passed": check.passed, "faults": list(check.faults)}


def _text(path: Path) -> str:
    try:
        return typer.get_text_stream("stdin").read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{path}: {getattr(error, 'strerror', None) or 'not UTF-8 text'}") from error
