"""Run a plan: read it, prepare the launch, start it, join what was measured."""

import json
import shutil
import signal
import subprocess
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from cost_models.errors import SpecError
from executor import client, environment
from executor.caps import check_cap
from executor.deepspeed_config import adapted_to_cpu, exported
from executor.device import check_device, check_precision
from executor.errors import PlanRefused, RunFailed
from executor.files import empty_directory, private_directory, said, write_text
from executor.hints import Thresholds
from executor.launch import (
    Launch,
    LaunchOptions,
    Script,
    configuration_to_run,
    prepare,
    processes_per_node,
    require_packages,
)
from executor.overrides import as_it_reads
from executor.processes import Stopped, run_group
from executor.report import RunReport, join, read_ranks
from planner.plan import MAX_BYTES, Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRun:
    """A launch and the plan it came from."""

    plan: Plan
    launch: Launch
    adaptations: tuple[str, ...]
    limits: Thresholds
    notes: tuple[str, ...]
    """What is to be said before it starts: what could not be checked, and what is not as planned."""


def read_plan(path: Path) -> Plan:
    """The plan in a file.

    Raises:
        SpecError: no such file, or no plan in it.
    """
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise SpecError(f"{path} holds {size} bytes, a plan at most {MAX_BYTES}")
        content = path.read_bytes()
    except OSError as error:
        raise SpecError(f"{path}: {(error.strerror or type(error).__name__).lower()}") from error
    return Plan.from_json(content)


def find_plan(named: Path, service: str | None) -> Plan:
    """The plan in a file of that name, else the service's plan of that id.

    Raises:
        SpecError: neither, or no plan in it.
        ServiceAway: the service does not answer.
        ServiceRefused: it knows no such plan.
    """
    if named.exists() or named.name != str(named):
        return read_plan(named)
    if service is None:
        raise SpecError(f"{named}: no such file; the id of a plan needs --service, the URL of the service that has it")
    return Plan.from_json(client.get_plan(service, named.name))


def prepare_run(plan: Plan, script: Script, options: LaunchOptions) -> PreparedRun:
    """Everything that can be refused is refused here, before anything is written or started.

    Raises:
        PlanRefused: it cannot be run here as asked, or its parts contradict each other.
        BrokenRule: a changed configuration breaks a rule.
        ExportUnsupported: DeepSpeed cannot express it.
        MissingExtra: torch or deepspeed is not installed.
    """
    plan, notes = as_it_reads(plan)
    notes += check_device(plan, processes_per_node(configuration_to_run(plan), options.nodes))
    if plan.prediction is None:
        raise PlanRefused(f"the plan {plan.envelope.id} states a configuration but no prediction to measure against")
    cpu = plan.pool.device.kind == "cpu"
    if cpu:
        check_precision(configuration_to_run(plan))
    notes += environment.unset(options.passed)
    if options.memory_cap is not None:
        notes += check_cap(options.memory_cap, plan.prediction, kind=plan.pool.device.kind)
    config, adaptations = _deepspeed_config(plan, cpu=cpu)
    adapted = configuration_to_run(plan).lora is not None
    needs_deepspeed = config is not None or options.starter == "deepspeed"
    require_packages("torch", *(("deepspeed",) if needs_deepspeed else ()), *(("peft",) if adapted else ()))
    launch = prepare(plan, config, script, options, cpu=cpu)
    return PreparedRun(
        plan=plan, launch=replace(launch, notes=notes), adaptations=adaptations, limits=options.limits, notes=notes
    )


def _deepspeed_config(plan: Plan, *, cpu: bool) -> tuple[str | None, tuple[str, ...]]:
    """The text of DeepSpeed's configuration and what was changed of it; None for another back end."""
    if configuration_to_run(plan).backend.name != "deepspeed":
        return None, ()
    config, changes = adapted_to_cpu(exported(plan)) if cpu else (exported(plan), ())
    return json.dumps(config, indent=2) + "\n", changes


def execute(prepared: PreparedRun, output: TextIO) -> RunReport:
    """Write the files, run to the end, join and store the report; a failed run is reported too.

    Raises:
        PlanRefused: the run directory already holds a run, or cannot be written.
    """
    launch, stopped_by = prepared.launch, None
    _write_files(launch)
    try:
        status = run_group(launch.argv, launch.environment, launch.cwd, output)
    except Stopped as stopped:
        stopped_by, status = int(stopped.number), -int(stopped.number)
    report = join(
        prepared.plan,
        read_ranks(launch.reports),
        exit_status=status,
        directory=launch.directory,
        stopped_by=stopped_by,
        adaptations=prepared.adaptations,
        notes=prepared.notes,
        limits=prepared.limits,
    )
    try:
        report.write(launch.directory / "report.json")
    except OSError as error:  # full by now: what was measured is still said
        note = f"{launch.directory / 'report.json'} could not be written: {said(error)}"
        report = report.model_copy(update={"notes": (*report.notes, note)})
    return report


def _write_files(launch: Launch) -> None:
    """The launch's files in a directory of their own.

    Raises:
        PlanRefused: it holds something, or cannot be written.
    """
    try:
        empty_directory(launch.directory)
        private_directory(launch.reports)
        for name, text in launch.files.items():
            write_text(launch.directory / name, text)
    except OSError as error:
        raise PlanRefused(f"--out {launch.directory} cannot be written: {said(error)}") from None


def submit(launch: Launch) -> None:
    """Write a batch system's files and hand them to it; its answer goes to the terminal.

    Raises:
        PlanRefused: its command is not installed here, or the directory is not empty or cannot be written.
        RunFailed: it refused the job.
    """
    if shutil.which(launch.argv[0]) is None:
        raise PlanRefused(f"{launch.argv[0]} is not installed here; --dry-run prints what it would be given")
    _write_files(launch)
    status = subprocess.run(launch.argv, cwd=launch.cwd, check=False).returncode  # an argument list, never a shell
    if status:
        raise RunFailed(f"{launch.argv[0]} ended with status {status}; its files are in {launch.directory}")


def check(report: RunReport) -> None:
    """A run that ended badly is an error.

    Raises:
        RunFailed: with the outcome and where its files are.
    """
    if report.outcome == "stopped":
        name = signal.Signals(report.signal).name if report.signal else "a signal"
        raise RunFailed(
            f"the training was stopped by {name} after {report.steps_done} steps and no process was left running; its "
            f"files are in {report.directory}"
        )
    if report.outcome != "ok":
        reason = report.error or f"exit status {report.exit_status}"
        whose = "" if report.failed_rank is None else f"rank {report.failed_rank}: "
        raise RunFailed(
            f"the training ended with {report.outcome} ({whose}{reason}); its files are in {report.directory}"
        )


def default_directory() -> Path:
    """A new directory per run, by the time."""
    return Path("meshwright-runs") / datetime.now(tz=UTC).strftime("%Y%m%dT%H%M%S.%fZ")
