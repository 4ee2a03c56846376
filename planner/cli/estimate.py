"""`meshwright estimate`: price exactly one configuration."""

import typer

from planner.cli import asked, output


def estimate_command(  # noqa: PLR0913, PLR0917  the arguments are the options
    file: asked.File = None,
    model: asked.Model = None,
    device: asked.Device = None,
    gpus: asked.Gpus = None,
    nodes: asked.Nodes = None,
    sequence_length: asked.SequenceLength = None,
    global_batch_size: asked.GlobalBatchSize = None,
    method: asked.Method = None,
    precision: asked.Precision = None,
    optimizer: asked.Optimizer = None,
    backend: asked.BackendName = None,
    settings: asked.Set = None,
    as_json: asked.Json = False,
) -> None:
    """Price exactly the configuration given: will it fit, how fast, where memory and time go.

    State it in the file, or by --set: --set zero_stage=3 --set micro_batch_size=2 --set recompute=full.
    """
    from planner.planning import estimate

    flags = {
        "model": model,
        "device": device,
        "gpus": gpus,
        "nodes": nodes,
        "method": method,
        "sequence_length": sequence_length,
        "global_batch_size": global_batch_size,
        "precision": precision,
        "optimizer": optimizer,
        "backend": backend,
    }
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
