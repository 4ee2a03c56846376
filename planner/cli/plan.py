"""`meshwright plan`: choose the best configuration and prove it."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from cost_models.errors import BrokenRule
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
    typer.Option(
        "--why-not",
        metavar="KEY=VALUE[,KEY=VALUE]",
        help="Also plan with these decisions pinned: what that costs, term by term, or the rule that forbids it.",
    ),
]


@asked.with_flags(*asked.FLAGS)
def plan_command(
    flags: dict[str, Any],
    file: asked.File = None,
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
    from planner.why_not import pins

    def request_with(pins: list[str]) -> dict[str, Any]:
        return asked.request_data(file, flags, settings, decisions="constraints", pins=pins)

    from planner.exporters import exporter

    for target in export or []:
        exporter(target)
    request = asked.read_request(request_with([]))
    resolve(request)
    pinned = {choice: asked.read_request(request_with(pins(choice))) for choice in why_not or []}
    with output.progress("planning", quiet=as_json) as report:
        found = plan(request, report=report)
        rivals = {choice: _planned(rival, report) for choice, rival in pinned.items()}
    if certificate is not None:
        from planner.cli.certificate import certify

        certify(found, certificate)
    artifacts, refused = _artifacts(found, export or [])
    if save_dir is not None:
        _save(save_dir, found, artifacts)
    if as_json:
        output.print_json(_document(found, artifacts, rivals))
    else:
        from planner.cli.render import artifact_text, plan_view, why_not_view

        console = output.result_console()
        plan_view(console, found)
        for choice, rival in rivals.items():
            why_not_view(console, choice, found, rival)
        for artifact in artifacts:
            output.print_text(artifact_text(artifact))
    if refused is not None:
        raise refused
    if found.status == "infeasible":
        raise typer.Exit(3)


def _planned(request: Any, report: Any) -> Any:
    """The best plan for a request, or the rule that leaves none before anything is priced."""
    from planner.planning import plan

    try:
        return plan(request, report=report)
    except BrokenRule as error:
        return str(error)


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
        from planner.why_not import against

        plans = {choice: rival for choice, rival in rivals.items() if not isinstance(rival, str)}
        document["why_not"] = {choice: rival.to_dict() for choice, rival in plans.items()}
        document["against"] = [asdict(against(choice, found, rival)) for choice, rival in rivals.items()]
    return document


def _save(folder: Path, found: Any, artifacts: list[Any]) -> None:
    from planner.cli.export import write_artifacts
    from planner.exporters.base import Artifact

    whole = Artifact(path="plan.json", media_type="application/json", text=found.to_json())
    for path in write_artifacts(folder, [whole, *artifacts]):
        output.say(f"wrote {path}")
