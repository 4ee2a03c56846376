"""`meshwright estimate`: price exactly one configuration."""

from typing import Any

import typer

from planner.cli import asked, output


@asked.with_flags(*asked.JOB)
def estimate_command(
    flags: dict[str, Any],
    file: asked.File = None,
    settings: asked.Set = None,
    as_json: asked.Json = False,
) -> None:
    """Price exactly the configuration given: will it fit, how fast, where memory and time go.

    State it in the file, or by --set: --set zero_stage=3 --set micro_batch_size=2 --set recompute=full.
    """
    from planner.planning import estimate

    data = asked.request_data(file, flags, settings, decisions="configuration")
    data.setdefault("configuration", {})
    found = estimate(asked.read_request(data))
    if as_json:
        output.print_json(found.to_dict())
    else:
        from planner.cli.render import estimate_view

        estimate_view(output.result_console(), found)
    if found.status == "infeasible":
        raise typer.Exit(3)
