"""From a run to the service: the measurement of its report, and the runs whose launcher died."""

import platform
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from cost_models.errors import MeshwrightError
from executor import client
from executor.report import RunReport, join, read_ranks
from executor.run import read_plan
from executor.spool import Sent, Spool

_OUTCOMES: Final = {
    "ok": "ok", "out_of_memory": "oom", "error": "failed", "killed": "failed", "diverged": "failed", "slow": "failed",
    "stopped": "failed",
}  # fmt: skip
_KILLED: Final = -9
"""Exit status of a launcher that could not say its own."""
_LONGEST_NOTE: Final = 4000


def path_of(report: RunReport) -> str:
    """Where the service keeps measurements of the plan."""
    return f"/v1/plans/{quote(report.plan_id, safe='')}/measurements"


def measurement(report: RunReport) -> dict[str, Any] | None:
    """What the service keeps of a run; None where there is nothing that it may keep of the plan: see `unreported`."""
    if unreported(report) is not None:
        return None
    figures = {line.quantity: line.measured for line in report.comparisons if line.measured}
    body: dict[str, Any] = {
        "outcome": _OUTCOMES[report.outcome],
        "steps": report.steps_done,
        "versions": {**report.versions, "python": platform.python_version()},
        "notes": _notes(report),
    }
    for quantity in ("peak_allocated", "peak_reserved", "peak_device"):
        if quantity in figures:
            body[f"{quantity}_bytes"] = int(figures[quantity])
    if report.outcome == "out_of_memory":
        facts = {"requested_bytes": report.requested_bytes, "phase": report.last_phase}
        body |= {key: value for key, value in facts.items() if value is not None}
    if "step_time" in figures:
        body["step_seconds"] = figures["step_time"]
    return body


def unreported(report: RunReport) -> str | None:
    """Why nothing of a run is reported."""
    if report.edited:
        return "the plan was changed after it was made, and this is no measurement of the one that the service knows"
    if report.outcome == "ok" and not any(line.measured for line in report.comparisons):
        return "nothing was measured"
    return None


def _notes(report: RunReport) -> str:
    """key=value tokens: how it ended, and where."""
    facts = {
        "outcome": report.outcome,
        "phase": report.last_phase,
        "requested_bytes": report.requested_bytes,
        "signal": report.signal,
        "processes": report.processes,
        "reported": report.reported,
        "suspect": report.suspect,
        "diverged_at": report.diverged_at,
        "system": f"{platform.system()}-{platform.machine()}".lower(),
        "error": report.error,
    }
    return " ".join(f"{key}={value}" for key, value in facts.items() if value is not None)[:_LONGEST_NOTE]


def send(spool: Spool, service: str) -> Sent:
    """Report runs whose launcher died, then send all that waits."""
    for run in spool.dead_runs():
        try:
            report = last_report(Path(run.directory))
        except MeshwrightError:  # the directory is gone or never held a plan: nothing is known
            spool.close_run(run.id, "", None)
            continue
        spool.close_run(run.id, path_of(report), measurement(report))
    return spool.replay(lambda path, body, key: client.post(service, path, body, idempotency_key=key))


def last_report(directory: Path) -> RunReport:
    """The report of a run that is over, made from what its processes left where the launcher could not.

    Raises:
        SpecError: the directory holds no plan.
    """
    path = directory / "report.json"
    if path.is_file():
        return RunReport.model_validate_json(path.read_bytes())
    plan = read_plan(directory / "plan.json")
    ranks = read_ranks(directory / "reports")
    assert plan.configuration is not None
    whole = len(ranks) == plan.configuration.world_size and all(rank.outcome == "ok" for rank in ranks)
    note = "the launcher died; this is what the processes left"
    report = join(plan, ranks, exit_status=0 if whole else _KILLED, directory=directory, notes=(note,))
    report.write(path)
    return report
