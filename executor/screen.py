"""Predicted against measured, for people."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cost_models.units import GIB
from executor.launch import Launch
from executor.probing import Probe
from executor.report import Comparison, RunReport


def show_report(report: RunReport, console: Console) -> None:
    """One table, then what is worth a sentence."""
    table = Table(title=Text(f"Run of plan {report.plan_id}: {_ended(report)}"), title_justify="left")
    for heading in ("", "predicted", "interval", "measured", "ratio"):
        table.add_column(heading, justify="right" if heading else "left")
    for line in report.comparisons:
        table.add_row(
            Text(_name(line)),
            _shown(line, line.predicted),
            _interval(line),
            "-" if line.measured is None else _shown(line, line.measured),
            "-" if line.ratio is None else f"{line.ratio:.2f}",
        )
    console.print(table)
    for line in report.comparisons:
        console.print(f"{_name(line)}: {line.method}", markup=False)
    if report.first_loss is not None and report.last_loss is not None:
        first = f"loss {report.first_loss:.4f} (step {report.first_loss_step})"
        console.print(f"{first} -> {report.last_loss:.4f} (step {report.last_loss_step})")
    if report.split:
        parts = report.split.model_dump(exclude={"step_seconds"})
        shown = ", ".join(f"{name.replace('_', ' ')} {seconds:.3f} s" for name, seconds in parts.items())
        console.print(f"one profiled step of {report.split.step_seconds:.3f} s: {shown}", soft_wrap=True)
    if report.data_wait_seconds is not None and report.hook_share is not None:
        console.print(f"between steps {report.data_wait_seconds:.4f} s; in the hooks {report.hook_share:.2%} of a step")
    phases = ", ".join(f"{phase} {peak.bytes / GIB:.3f} GiB" for phase, peak in report.resident.items())
    if phases:
        busy = "" if report.utilisation is None else f"; utilisation {report.utilisation:.0%}"
        host = "" if report.host_bytes is None else f"; host RAM {report.host_bytes / GIB:.3f} GiB"
        console.print(f"peak by phase: {phases}{host}{busy}", markup=False, soft_wrap=True)
    for hint in report.hints:
        console.print(f"hint: {hint}", markup=False, soft_wrap=True)
    for note in (*report.adaptations, *report.notes):
        console.print(f"note: {note}", markup=False, soft_wrap=True)
    if report.error:
        whose = "" if report.failed_rank is None else f"rank {report.failed_rank}: "
        console.print(f"error: {whose}{report.error}", markup=False, soft_wrap=True)
    for other in report.other_failures:
        console.print(f"then {other}", markup=False, soft_wrap=True)
    if report.last_phase:
        asked = f", asking for {report.requested_bytes / GIB:.3f} GiB" if report.requested_bytes else ""
        signal = f", by signal {report.signal}" if report.signal else ""
        console.print(f"it ended in the phase {report.last_phase} after {report.steps_done} steps{asked}{signal}")
    console.print(f"files: {report.directory}", markup=False, soft_wrap=True)


def show_launch(launch: Launch, console: Console) -> None:
    """What would run: the command, the environment added, the files."""
    console.print("the model is wrapped by:", *launch.wrapping, sep="\n  ", markup=False, soft_wrap=True)
    console.print("command:", *launch.argv, sep="\n  ", markup=False, soft_wrap=True)
    if launch.added:
        added = (f"{name}={value}" for name, value in sorted(launch.added.items()))
        console.print("environment:", *added, sep="\n  ", markup=False, soft_wrap=True)
    for name, text in launch.files.items():
        console.print(f"file: {launch.directory / name}", markup=False, soft_wrap=True)
        if name.startswith("job."):
            console.print(text, markup=False, soft_wrap=True, highlight=False)


def show_probe(probe: Probe, console: Console) -> None:
    """What the node is, then a table of rates and one of collectives."""
    node, figures = probe.node, probe.figures
    gpus = ", ".join(gpu.name for gpu in node.gpus) or "no GPU"
    console.print(f"{node.cpu}, {node.cores} cores, {node.memory_bytes / GIB:.1f} GiB, {gpus}", markup=False)
    for kind, by in figures.matmul.items():
        shown = ", ".join(f"{shape}: {rate / 1e9:.4g}" for shape, rate in by.items())
        console.print(f"{kind} matmul [GFLOP/s] {shown}", markup=False)
    console.print(f"memory copy {figures.copy_bytes_per_second / 1e9:.3g} GB/s")
    for collective, fit in figures.collectives.items():
        console.print(
            f"{collective}: {fit.alpha_seconds * 1e6:.3g} us a step, {fit.bytes_per_second / 1e9:.3g} GB/s, "
            f"error {fit.median_error:.0%} median, {fit.max_error:.0%} at most"
        )
    for note in node.notes:
        console.print(f"note: {note}", markup=False)


def _interval(line: Comparison) -> str:
    if line.interval is None:
        return "-"
    level = "" if line.level is None else f"{100 * line.level:.4g} %: "
    return level + " .. ".join(_shown(line, end) for end in line.interval)


def _ended(report: RunReport) -> str:
    """The outcome, and what `ok` does not mean."""
    measured = any(line.measured is not None for line in report.comparisons)
    return report.outcome if measured or report.outcome != "ok" else "ok, but nothing was measured"


def _name(line: Comparison) -> str:
    return line.quantity.replace("_", " ")


def _shown(line: Comparison, value: float) -> str:
    return f"{value:.3f} s" if line.unit == "s" else f"{value / GIB:.3f} GiB"
