"""The probe of this machine, and one run of one configuration, both as `meshwright-exec` does them."""

import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any, TextIO

import yaml

from benchmarks.recalibration.configurations import PROCESSES, Planned
from benchmarks.recalibration.rows import Row
from executor.launch import LaunchOptions, Measuring, Script
from executor.measured import StepTimes
from executor.probing import probe, write_pool
from executor.report import RunReport, read_ranks
from executor.run import execute, prepare_run
from planner.planning import estimate
from planner.request import PlanRequest

MEMORY: int = 3 * 2**30
"""What each process may use: ample, so that no configuration is refused. [bytes]"""
SCRIPT = Path(__file__).parents[2] / "executor" / "examples" / "train_llama.py"
STEPS = Measuring(warmup_steps=2, timed_steps=5)


def pool(path: Path, log: TextIO) -> dict[str, Any]:
    """The probed pool, measured once."""
    if not path.is_file():
        write_pool(probe(PROCESSES, name="cpu-probe", memory_bytes=MEMORY, output=log), path)
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def measure(planned: Planned, pool: dict[str, Any], log: TextIO) -> Row:
    """Train it for a few steps."""
    plan = estimate(PlanRequest.read({**planned.request(), "cluster": {"pools": [pool]}}))
    with tempfile.TemporaryDirectory(prefix="meshwright-recalibration-") as folder:
        directory = Path(folder) / "run"
        options = LaunchOptions(directory=directory, measuring=STEPS)
        report = execute(prepare_run(plan, Script(path=SCRIPT), options), log)
        times = [rank.times for rank in read_ranks(directory / "reports") if rank.times.seconds]
    return row_of(planned, report, times)


def row_of(planned: Planned, report: RunReport, times: list[StepTimes]) -> Row:
    """The row of a run's report."""
    figures = {line.quantity: line.measured for line in report.comparisons}
    slowest = max(times, key=lambda of: of.median_seconds, default=None)
    quartiles = statistics.quantiles(slowest.seconds, n=4) if slowest and len(slowest.seconds) > 1 else []
    allocated, resident = figures["peak_allocated"], figures["peak_reserved"]
    if report.outcome != "ok":
        sys.stderr.write(f"{planned.name}: {report.outcome}: {report.error}\n")
    return Row(
        name=planned.name,
        request=planned.request(),
        outcome=report.outcome,
        step_seconds=figures["step_time"],
        step_spread=(quartiles[2] - quartiles[0]) / slowest.median_seconds if slowest and quartiles else None,
        allocated_bytes=None if allocated is None else int(allocated),
        resident_bytes=None if resident is None else int(resident),
        first_loss=report.first_loss,
        last_loss=report.last_loss,
        cpu_seconds=statistics.median(slowest.cpu_seconds) if slowest else None,
        versions=report.versions,
    )
