"""`meshwright calibrate`: constants from measurements."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cost_models.errors import SpecError
from planner.cli import asked, output
from planner.errors import PlannerError

if TYPE_CHECKING:
    from planner.fitting.fit import Fitted

Data = Annotated[Path | None, typer.Option("--data", help="Folder of measurement CSVs; the shipped ones if left out.")]
Site = Annotated[
    Path | None,
    typer.Option("--site", help="Folder of a site's own measurements: update the shipped calibration with them."),
]
Out = Annotated[
    Path | None, typer.Option("--output", "-o", help="Where to write the updated calibration (with --site).")
]
Write = Annotated[bool, typer.Option("--write", help="Write a refit into calibration_data of this checkout.")]
Check = Annotated[bool, typer.Option("--check", help="Fail when the shipped constants are not what a refit gives.")]


def calibrate_command(
    data: Data = None, site: Site = None, out: Out = None, write: Write = False, check: Check = False,
    as_json: asked.Json = False,
) -> None:  # fmt: skip
    """Refit the constants of the cost models from measurements; or, with --site, correct them for a site's devices."""
    if site is not None:
        _site(site, out, as_json=as_json)
        return
    from cost_models import catalog
    from planner.fitting import shipping

    with output.progress("calibrating", quiet=as_json) as report:
        new = shipping.recalibrate(catalog.calibration(), data, report=report)
    changed = shipping.differences(new, catalog.calibration())
    if as_json:
        output.print_json(_figures(new.result) | {"changed": changed})
    else:
        output.plain_console().print(_table(new.result))
    if write:
        output.say(f"wrote {shipping.write(new)} changed values and the residuals")
    elif check and changed:
        raise PlannerError(f"{len(changed)} constants are not what a refit gives, first {changed[0]}")


def _site(folder: Path, out: Path | None, *, as_json: bool) -> None:
    from planner.fitting.site_report import site_report

    found = site_report(folder)
    if out is not None:
        try:
            out.write_text(_yaml(found.calibration.model_dump(mode="json", exclude_defaults=True)), encoding="utf-8")
        except OSError as error:
            raise SpecError(f"--output {out}: {error.strerror}") from error
        output.say(f"wrote {out}")
    if as_json:
        output.print_json(found.to_dict())
    else:
        for key, factor in found.changed.items():
            unit = factor.unit if factor.unit != "1" else ""
            output.print_text(f"{key}: {factor.value:g} {unit}  ({factor.source})\n")
    for line in found.lines():
        output.say(line)


def _yaml(value: Any) -> str:
    import yaml

    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=120)


def _figures(result: "Fitted") -> dict[str, Any]:
    spread, readers = result.spread, result.batches.readers()
    return {
        "version": result.calibration.version,
        "rows": len(result.batches.samples),
        "factors": {
            name: {
                "value": result.calibration.factors[name].value,
                "prior": result.calibration.factors[name].prior,
                "sigma": result.calibration.factors[name].sigma,
                "posterior_sigma": float(f"{spread[name]:.3g}"),
                "rows": len(readers[name]),
            }
            for name in result.names
        },
    }


def _table(result: "Fitted") -> Any:
    from rich.table import Table

    table = Table(title=f"{len(result.batches.samples)} rows", title_justify="left", box=None, pad_edge=False)
    for index, column in enumerate(("factor", "prior", "fitted", "log sd before", "after", "rows")):
        table.add_column(column, justify="left" if index == 0 else "right")
    for name, f in _figures(result)["factors"].items():
        figures = [f"{f[key]:.3g}" for key in ("prior", "value", "sigma", "posterior_sigma")]
        table.add_row(name, *figures, str(f["rows"]))
    return table
