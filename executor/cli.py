"""`meshwright-exec`: run plans on training nodes. Results on stdout, talk on stderr; exit codes as `meshwright`'s."""

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TextIO

import typer

from cost_models.errors import MeshwrightError, SpecError
from cost_models.units import parse_bytes
from executor.errors import MissingExtra, PlanInfeasible, PlanRefused, ServiceAway
from executor.hints import thresholds
from executor.launch import Launch, LaunchOptions, Measuring, Nodes, Script
from planner.errors import ExportUnsupported

if TYPE_CHECKING:
    from executor.report import RunReport
    from executor.run import PreparedRun
    from executor.spool import Sent, Spool

EXIT_ERROR, EXIT_USAGE, EXIT_INFEASIBLE, EXIT_AWAY = 1, 2, 3, 4
EXIT_INTERRUPTED = EXIT_ERROR


class Launcher(StrEnum):
    """Who starts the processes: of this node, or a batch system that runs `meshwright-exec run` on every node."""

    torchrun = "torchrun"
    deepspeed = "deepspeed"
    slurm = "slurm"
    kubernetes = "kubernetes"
    pytorchjob = "pytorchjob"


class Tracker(StrEnum):
    """Where a run may be recorded beside its own report."""

    tensorboard = "tensorboard"
    mlflow = "mlflow"
    wandb = "wandb"


app = typer.Typer(
    name="meshwright-exec",
    help="Run plans on training nodes: launch, measure, report.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def root() -> None:
    """Run plans on training nodes: launch, measure, report."""


@app.command()
def run(  # noqa: PLR0913, PLR0917  a command's options are its arguments
    plan: Annotated[
        Path, typer.Argument(help="plan.json, as `meshwright plan --json` prints it, or an id at the service")
    ],
    script: Annotated[list[str], typer.Argument(metavar="-- SCRIPT [ARGS]...", help="training script and arguments")],
    processes: Annotated[int | None, typer.Option(min=1, help="on each node (default: from the plan)")] = None,
    nodes: Annotated[int, typer.Option(min=1, help="nodes that take part")] = 1,
    node_rank: Annotated[int, typer.Option(min=0, help="which of them this one is")] = 0,
    rendezvous: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="of node 0, for several nodes")] = None,
    out: Annotated[Path | None, typer.Option(help="directory of the run (default: meshwright-runs/TIME)")] = None,
    warmup_steps: Annotated[int, typer.Option(min=1, help="steps before anything is measured")] = 3,
    timed_steps: Annotated[int, typer.Option(min=1, help="steps whose median is the step time")] = 10,
    pass_env: Annotated[list[str] | None, typer.Option(metavar="NAME", help="variable the training inherits")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print what would run, start nothing")] = False,
    launcher: Annotated[Launcher, typer.Option(help="who starts the processes")] = Launcher.torchrun,
    image: Annotated[str | None, typer.Option(help="container image, for Kubernetes")] = None,
    time_limit: Annotated[str | None, typer.Option(metavar="[D-]H:M:S", help="for Slurm")] = None,
    service: Annotated[
        str | None, typer.Option(envvar="MESHWRIGHT_SERVICE", help="URL to post the measurement to")
    ] = None,
    memory_cap: Annotated[str | None, typer.Option(help="what each CPU process may hold, such as 2GiB")] = None,
    recover: Annotated[
        int, typer.Option(min=0, metavar="N", help="go on from the last checkpoint after a bad end, N times at most")
    ] = 0,
    checkpoint_every: Annotated[int, typer.Option(min=1, help="steps between checkpoints, with --recover")] = 50,
    slowdown: Annotated[
        float, typer.Option(min=0, help="steps so many times slower than at first end a run, with --recover; 0: none")
    ] = 3.0,
    tracker: Annotated[
        list[Tracker] | None, typer.Option(help="also record the run there; its package must be installed")
    ] = None,
    threshold: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="from where a hint is given: communication=0.4")
    ] = None,
    panel: Annotated[bool | None, typer.Option(help="live panel; default: where standard error is a terminal")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Launch a training under a plan and print predicted against measured.

    `{deepspeed_config}` in the script's arguments stands for the DeepSpeed configuration written from the plan; the
    script also finds it in MESHWRIGHT_DEEPSPEED_CONFIG, and the plan in MESHWRIGHT_PLAN.
    """
    from executor.client import check_address
    from executor.panel import panelled
    from executor.run import check, default_directory, execute, find_plan, prepare_run, submit
    from executor.trackers import check_installed, record, track

    if service is not None:
        check_address(service)
    directory = (out or default_directory()).absolute()
    starter: Literal["torchrun", "deepspeed"] = "deepspeed" if launcher is Launcher.deepspeed else "torchrun"
    here = launcher.value == starter
    options = LaunchOptions(
        directory=directory / f"node-{node_rank}" if nodes > 1 and here else directory,
        starter=starter,
        nodes=Nodes(count=nodes, rank=node_rank, processes=processes, rendezvous=rendezvous),
        measuring=Measuring(warmup_steps=warmup_steps, timed_steps=timed_steps),
        passed=tuple(pass_env or ()),
        limits=thresholds(threshold or ()),
        memory_cap=None if memory_cap is None else parse_bytes(memory_cap),
    )
    if recover and (nodes > 1 or not here):
        raise PlanRefused(f"--recover goes on where this command starts one node, not on {nodes} by {launcher.value}")
    asked = Script(path=Path(script[0]), arguments=tuple(script[1:]))
    if not here:
        from executor.launchers import BatchOptions, batch_launch

        batch = BatchOptions(image=image, time_limit=time_limit)
        job = batch_launch(find_plan(plan, service), asked, options, launcher.value, batch)
        _say_notes(job.notes)
        if dry_run:
            _print_launch(job, as_json=as_json)
        else:
            submit(job)
        return
    trackers = [named.value for named in tracker or ()]
    check_installed(trackers)
    chosen = find_plan(plan, service)
    prepared = prepare_run(chosen, asked, options)
    _say_notes(prepared.notes)
    if dry_run:
        _print_launch(prepared.launch, as_json=as_json)
        return

    def once(what: "PreparedRun", output: TextIO) -> "RunReport":
        # The training's own output is talk: stdout carries the report alone.
        with panelled(what, shown=sys.stderr.isatty() if panel is None else panel) as talk:
            ended = _posted(what, service, talk or output) if service else execute(what, talk or output)
        if trackers:
            track(trackers, record(what.plan, ended, service))
        return ended

    if recover:
        from executor.recovery.supervise import Policy, supervise

        policy = Policy(attempts=recover, checkpoint_every=checkpoint_every, slowdown=slowdown)
        found = supervise(chosen, asked, options, policy, sys.stderr, once)[-1].report
    else:
        found = once(prepared, sys.stderr)
    if as_json:
        typer.echo(json.dumps(found.to_dict(), indent=2))
    else:
        from rich.console import Console

        from executor.screen import show_report

        show_report(found, Console())
    check(found)


def _posted(prepared: "PreparedRun", service: str, output: TextIO) -> "RunReport":
    """Run, and send the measurement now or whenever the service is there again."""
    from executor.reporting import measurement, path_of, unreported
    from executor.run import execute
    from executor.spool import Spool

    spool = Spool()
    run_id = spool.open_run(prepared.launch.directory)
    found = execute(prepared, output)
    told = measurement(found)
    spool.close_run(run_id, path_of(found), told)
    if told is None:
        sys.stderr.write(f"nothing of this run is reported to {service}: {unreported(found)}\n")
    _send(spool, service)
    return found


def _send(spool: "Spool", service: str) -> "Sent":
    from executor.reporting import send

    done = send(spool, service)
    sys.stderr.write(
        f"measurements: {done.sent} sent, {done.refused} refused, {done.waiting} waiting in {spool.root}\n"
    )
    for line in (*done.wrong, *filter(None, [done.why])):
        sys.stderr.write(f"{line}\n")
    return done


@app.command()
def report(
    service: Annotated[str, typer.Option(envvar="MESHWRIGHT_SERVICE", help="URL of the service")],
) -> None:
    """Send what waits in the spool, and report runs whose launcher died. Exit 4: the service is away, 1: it refused."""
    from executor.client import check_address
    from executor.spool import Spool

    check_address(service)
    done = _send(Spool(), service)
    if done.waiting or done.refused:
        raise typer.Exit(EXIT_AWAY if done.waiting else EXIT_ERROR)


@app.command()
def probe(
    processes: Annotated[int | None, typer.Option(min=1, help="default: one a GPU; 2 without GPUs")] = None,
    memory: Annotated[str | None, typer.Option(help="cap of each process on a CPU, such as 2GiB")] = None,
    name: Annotated[str | None, typer.Option(help="of the device; default: cpu-probe, with GPUs gpu-probe")] = None,
    out: Annotated[Path, typer.Option(help="file for `cluster: {device: FILE}`")] = Path("probe.yaml"),
    service: Annotated[
        str | None, typer.Option(envvar="MESHWRIGHT_SERVICE", help="URL to register device and cluster at")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="NAME", help="of the cluster at the service; default: the device's name")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Read this node and measure it with the job's own number of processes."""
    from executor.client import check_address
    from executor.probing import check_asked, default_name, default_processes, register, write_pool
    from executor.probing import probe as measure

    if cluster is not None and service is None:
        raise PlanRefused(f"--cluster {cluster} needs --service, the URL to register it at")
    if service is not None:
        check_address(service)
    cap = None if memory is None else parse_bytes(memory)
    name, processes = name or default_name(), processes or default_processes()
    check_asked(names=(name, cluster or name), memory_bytes=cap, processes=processes, out=out)
    found = measure(processes, name=name, memory_bytes=cap, output=sys.stderr)
    if as_json:
        typer.echo(found.model_dump_json(indent=2))
    else:
        from rich.console import Console

        from executor.screen import show_probe

        show_probe(found, Console())
    write_pool(found, out)  # after the figures are shown: a disk that is full by now does not take them away
    sys.stderr.write(f"written: {out}\n")
    if service is not None:
        register(found, service, device=name, cluster=cluster or name)


def _say_notes(notes: tuple[str, ...]) -> None:
    """Before anything starts, on standard error; the report repeats them."""
    for note in notes:
        sys.stderr.write(f"warning: {note}\n")


def _print_launch(launch: Launch, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(launch.to_dict(), indent=2))
        return
    from rich.console import Console

    from executor.screen import show_launch

    show_launch(launch, Console())


def exit_code(error: MeshwrightError) -> int:
    """The exit code of an error: 3 infeasible, 2 for what the user can write differently, 4 for a service that does
    not answer, 1 for the rest.
    """
    if isinstance(error, PlanInfeasible):
        return EXIT_INFEASIBLE
    if isinstance(error, ServiceAway):
        return EXIT_AWAY
    return EXIT_USAGE if isinstance(error, SpecError | PlanRefused | ExportUnsupported | MissingExtra) else EXIT_ERROR


def main() -> None:
    """Entry point: errors become one line on stderr and an exit code."""
    try:
        app()
    except MeshwrightError as error:
        sys.stderr.write(f"meshwright-exec: {error}\n")
        raise SystemExit(exit_code(error)) from None
    except KeyboardInterrupt:
        sys.stderr.write("meshwright-exec: interrupted; no process was left running\n")
        raise SystemExit(EXIT_INTERRUPTED) from None


if __name__ == "__main__":
    main()
