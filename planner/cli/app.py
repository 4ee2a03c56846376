"""The root command: our verbs, those of installed floors, and what an error becomes."""

import os
import sys
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

import typer
from typer.core import TyperGroup

from cost_models.errors import MeshwrightError, SpecError
from planner.cli import calibrate, catalogue, certificate, estimate, export, frontier, plan, support, validate
from planner.errors import PlannerError

GROUP: Final = "meshwright.commands"
USAGE, INFEASIBLE, UNREACHABLE, OTHER = 2, 3, 4, 1
"""Exit codes beside 0."""


class _Plugins(TyperGroup):
    """A group that knows the commands of floors above by name and loads one only when it is called or described."""

    @staticmethod
    def _points() -> dict[str, EntryPoint]:
        return {point.name: point for point in entry_points(group=GROUP)}

    def list_commands(self, ctx: Any) -> list[str]:
        own = super().list_commands(ctx)
        return own + sorted(set(self._points()) - set(own))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        own = super().get_command(ctx, cmd_name)
        if own is not None or cmd_name not in (points := self._points()):
            return own
        return _command(cmd_name, _loaded(points[cmd_name]))


def _loaded(point: EntryPoint) -> Any:
    """What the entry point names; where it cannot be imported, a command that says so when it is called."""
    try:
        return point.load()
    except (ImportError, AttributeError) as error:
        reason = f"{point.name} cannot be loaded: {error}"

        def unavailable() -> None:
            raise PlannerError(reason)

        unavailable.__doc__ = f"Not available: {error}"
        return unavailable


def _command(name: str, loaded: Any) -> Any:
    """A Typer application or a plain function as the command `name`."""
    if not isinstance(loaded, typer.Typer):
        single = typer.Typer(pretty_exceptions_enable=False)
        single.command(name)(loaded)
        loaded = single
    command = typer.main.get_command(loaded)
    command.name = name
    return command


app = typer.Typer(
    name="meshwright",
    cls=_Plugins,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    help="Plan LLM training before a GPU is taken. Results go to standard output, talk to standard error. "
    "Exit codes: 0 ok, 2 usage, 3 infeasible, 4 service unreachable, 1 anything else.",
)
app.command("plan")(plan.plan_command)
app.command("estimate")(estimate.estimate_command)
app.command("frontier")(frontier.frontier_command)
app.command("ladder")(frontier.ladder_command)
app.command("export")(export.export_command)
app.command("certificate")(certificate.certificate_command)
app.command("verify")(certificate.verify_command)
app.command("validate")(validate.validate_command)
app.command("calibrate")(calibrate.calibrate_command)
app.command("support")(support.support_command)
app.command("models")(catalogue.models_command)
app.command("devices")(catalogue.devices_command)


def _version(asked: bool) -> None:
    if asked:
        from planner.version import __version__

        typer.echo(f"meshwright {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    pass


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; a deliberate error becomes one line on standard error and an exit code."""
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever reads has seen enough, as `| head`: what is buffered must not complain when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


def _run(arguments: list[str] | None) -> int:
    try:
        app(args=arguments, prog_name="meshwright")
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):
            raise end.__context__ from end
        return end.code if isinstance(end.code, int) else OTHER
    except MeshwrightError as error:
        return _failed(error)
    except KeyboardInterrupt:
        typer.echo("meshwright: interrupted", err=True)
        return OTHER
    return 0


def _failed(error: MeshwrightError) -> int:
    text = " ".join(str(error).split())
    lists = {"unknown device": "devices", "unknown model": "models"}
    verb = next((verb for start, verb in lists.items() if start in text), None)
    if verb is not None and "did you mean" not in text:
        text += f"; `meshwright {verb}` lists them"
    typer.echo(f"meshwright: {text}", err=True)
    return USAGE if isinstance(error, SpecError) else getattr(error, "exit_code", OTHER)
