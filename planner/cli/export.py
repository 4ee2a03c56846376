"""`meshwright export`: a plan in the words of a framework."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cost_models.errors import SpecError
from planner.cli import asked, output

TARGETS: Final = "deepspeed, megatron, accelerate (DDP and FSDP2), or what a plug-in adds."


def export_command(
    plan: Annotated[
        Path, typer.Argument(metavar="PLAN", help="plan.json, as `plan --json` prints it; - reads it from a pipe.")
    ],
    to: Annotated[str, typer.Option("--to", metavar="TARGET", help=TARGETS)],
    save_dir: Annotated[Path | None, typer.Option("--save-dir", help="Write the artifacts into this folder.")] = None,
    nodes: Annotated[
        int | None, typer.Option("--nodes", min=1, help="Nodes, where they differ from the plan's.")
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option("--learning-rate", help="Left to the script where left out.")
    ] = None,
    lossy: Annotated[
        bool, typer.Option("--lossy", help="Write what can be said; every loss becomes a comment.")
    ] = False,
    as_json: asked.Json = False,
) -> None:
    """Write a plan as the configuration and launch command of a framework."""
    from planner.exporters import ExportOptions, render

    found = read_plan(plan)
    options = ExportOptions(nodes=nodes, learning_rate=learning_rate, allow_lossy=lossy)
    artifacts = render(found, to, options)
    if found.edited:
        from planner.edited import EDITED

        output.say(f"warning: {EDITED}")
    if save_dir is not None:
        for path in write_artifacts(save_dir, artifacts):
            output.say(f"wrote {path}")
    if as_json:
        output.print_json([{"path": a.path, "media_type": a.media_type, "text": a.text} for a in artifacts])
    elif save_dir is None:
        from planner.cli.render import artifact_text

        for artifact in artifacts:
            output.print_text(artifact_text(artifact))


def read_plan(path: Path) -> Any:
    """A plan from a file or, as `-`, from standard input; also out of the document that `plan --export --json` prints.

    Raises:
        SpecError: it cannot be read, or is no plan.
    """
    from planner.plan import MAX_BYTES, Plan
    from planner.reading import read_json

    try:
        text = typer.get_text_stream("stdin").read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{path}: {getattr(error, 'strerror', None) or 'not UTF-8 text'}") from error
    data = read_json(text, str(path), limit=MAX_BYTES)
    return Plan.read(data.get("plan", data))


def write_artifacts(folder: Path, artifacts: Iterable[Any]) -> list[Path]:
    """Write each artifact under `folder`; scripts become executable.

    Raises:
        SpecError: the folder cannot be written.
    """
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for artifact in artifacts:
            path = folder / artifact.path
            path.write_text(artifact.text, encoding="utf-8")
            if artifact.media_type == "text/x-shellscript":
                path.chmod(0o755)
            written.append(path)
    except OSError as error:
        raise SpecError(f"--save-dir {folder}: {error.strerror}") from error
    return written
