"""`meshwright frontier` and `meshwright ladder`: many proven answers in one call."""

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cost_models.errors import SpecError
from planner.cli import asked, output

Job = Annotated[Path | None, typer.Argument(metavar="JOB", help="Request in YAML or JSON, as with -f.")]
AxesOption = Annotated[str, typer.Option("--axes", help="time,memory or time,gpus or time,cost.")]
Points = Annotated[int, typer.Option("--points", help="Most points printed.")]
SaveDir = Annotated[
    Path | None,
    typer.Option("--save-dir", help="Write every point as a whole plan, fit for `export`, into this folder."),
]
Range = Annotated[
    str | None,
    typer.Option("--gpus", metavar="LOW..HIGH", help="GPU counts to ask about; all of the cluster's where left out."),
]
_DECISIONS: Final = "constraints"


def frontier_command(
    job: Job = None,
    file: asked.File = None,
    axes: AxesOption = "time,memory",
    points: Points = 20,
    save_dir: SaveDir = None,
    settings: asked.Set = None,
    as_json: asked.Json = False,
) -> None:
    """The configurations that nothing beats on two axes at once, each of them proven."""
    from planner.frontier import frontier, frontier_plans
    from planner.fronts import AXES

    names = tuple(name.strip() for name in axes.split(","))
    pair = next((known for known in AXES if known == names), None)
    if pair is None:
        raise SpecError(f"--axes {axes} is none of {' '.join(','.join(known) for known in AXES)}")
    request = _request(job or file, {}, settings)
    with output.progress("frontier", quiet=as_json) as report:
        found = frontier(request, pair, points, report=report)
        plans = frontier_plans(request, pair, points) if save_dir is not None else ()
    if save_dir is not None:
        _save(save_dir, plans)
    if as_json:
        output.print_json(found.model_dump(mode="json"))
    else:
        from planner.cli.render.fronts import frontier_view

        frontier_view(output.result_console(), found)
    if found.status == "infeasible":
        raise typer.Exit(3)


def ladder_command(
    job: Job = None,
    file: asked.File = None,
    gpus: Range = None,
    settings: asked.Set = None,
    as_json: asked.Json = False,
) -> None:
    """For every number of GPUs in a range the proven fastest plan, its time and its price, or why there is none."""
    from planner.frontier import ladder

    low, high = _range(gpus)
    request = _request(job or file, {}, settings)
    with output.progress("ladder", quiet=as_json) as report:
        found = ladder(request, low, high, report=report)
    if as_json:
        output.print_json(found.model_dump(mode="json"))
    else:
        from planner.cli.render.fronts import ladder_view

        ladder_view(output.result_console(), found)
    if not any(rung.point for rung in found.rungs):
        raise typer.Exit(3)


def _request(file: Path | None, flags: dict[str, Any], settings: list[str] | None) -> Any:
    return asked.read_request(asked.request_data(file, flags, settings, decisions=_DECISIONS))


def _range(text: str | None) -> tuple[int, int | None]:
    """`8..64`, or one count."""
    if text is None:
        return 1, None
    low, dots, high = text.partition("..")
    try:
        found = int(low), int(high if dots else low)
    except ValueError as error:
        raise SpecError(f"--gpus {text!r} is no range such as 8..64") from error
    if not 1 <= found[0] <= found[1]:
        raise SpecError(f"--gpus {text}: {found[0]} to {found[1]} is no range of counts from 1")
    return found


def _save(folder: Path, plans: Any) -> None:
    from planner.cli.export import write_artifacts
    from planner.exporters.base import Artifact

    whole = [
        Artifact(path=f"point-{number:02}.json", media_type="application/json", text=plan.to_json())
        for number, plan in enumerate(plans, start=1)
    ]
    for path in write_artifacts(folder, whole):
        output.say(f"wrote {path}")
