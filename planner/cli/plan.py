"""`meshwright plan`: choose the best configuration and prove it."""

from pathlib import Path
from typing import Annotated, Any

import typer

from planner.cli import asked, output
from planner.errors import ExportUnsupported

Export = Annotated[
    list[str] | None, typer.Option("--export", metavar="TARGET", help="Also print the artifacts for this target.")
]
SaveDir = Annotated[Path | None, typer.Option("--save-dir", help="Write plan.json and the artifacts into this folder.")]
CertificateFile = Annotated[
    Path | None, typer.Option("--certificate", metavar="FILE", help="Write the proof, for `meshwright verify`.")
]
WhyNot = Annotated[
    list[str] | None,
    typer.Option("--why-not", metavar="KEY=VALUE", help="Also plan with this decision pinned, and compare."),
]


def plan_command(  # noqa: PLR0913, PLR0917  the arguments are the options
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
    objective: asked.ObjectiveName = None,
    settings: asked.Set = None,
    export: Export = None,
    save_dir: SaveDir = None,
    why_not: WhyNot = None,
    certificate: CertificateFile = None,
    as_json: asked.Json = False,
) -> None:
    """Choose the best configuration for a job, prove it, and say why not the others."""
    from planner.planning import plan
    from planner.resolve import resolve

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
        "objective": objective,
    }

    def request_with(pins: list[str]) -> dict[str, Any]:
        return asked.request_data(file, flags, [*(settings or []), *pins], decisions="constraints")

    from planner.exporters import exporter

    for target in export or []:
        exporter(target)
    request = asked.read_request(request_with([]))
    pinned = [asked.read_request(request_with([pin])) for pin in why_not or []]
    for asked_instead in pinned:
        resolve(asked_instead)  # a pin that contradicts the model is refused before anything is planned
    with output.progress("planning", quiet=as_json) as report:
        found = plan(request, report=report)
        rivals = [plan(rival, report=report) for rival in pinned]
    if certificate is not None:
        from planner.cli.certificate import certify

        certify(found, certificate)
    artifacts, refused = _artifacts(found, export or [])
    if save_dir is not None:
        _save(save_dir, found, artifacts)
    if as_json:
        output.print_json(_document(found, artifacts, dict(zip(why_not or [], rivals, strict=True))))
    else:
        from planner.cli.render import artifact_text, plan_view, why_not_view

        console = output.result_console()
        plan_view(console, found)
        for pin, rival in zip(why_not or [], rivals, strict=True):
            why_not_view(console, pin, found, rival)
        for artifact in artifacts:
            output.print_text(artifact_text(artifact))
    if refused is not None:
        raise refused
    if found.status == "infeasible":
        raise typer.Exit(3)


def _artifacts(found: Any, targets: list[str]) -> tuple[list[Any], ExportUnsupported | None]:
    """The artifacts, and the first refusal: the plan took long to make and is printed in spite of it."""
    from planner.exporters import render

    artifacts: list[Any] = []
    refused = None
    for target in targets if found.configuration is not None else []:
        try:
            artifacts += render(found, target)
        except ExportUnsupported as error:
            refused = refused or error
    return artifacts, refused


def _document(found: Any, artifacts: list[Any], rivals: dict[str, Any]) -> dict[str, Any]:
    """The plan itself; with `--export` or `--why-not`, what they add stands beside it."""
    if not artifacts and not rivals:
        plain: dict[str, Any] = found.to_dict()
        return plain
    document: dict[str, Any] = {"plan": found.to_dict()}
    if artifacts:
        document["artifacts"] = [{"path": a.path, "media_type": a.media_type, "text": a.text} for a in artifacts]
    if rivals:
        document["why_not"] = {pin: rival.to_dict() for pin, rival in rivals.items()}
    return document


def _save(folder: Path, found: Any, artifacts: list[Any]) -> None:
    from planner.cli.export import write_artifacts
    from planner.exporters.base import Artifact

    whole = Artifact(path="plan.json", media_type="application/json", text=found.to_json())
    for path in write_artifacts(folder, [whole, *artifacts]):
        output.say(f"wrote {path}")
