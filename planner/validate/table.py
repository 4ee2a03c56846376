"""The report as a table for people."""

from typing import TYPE_CHECKING, Any

from planner.validate.report import ValidationReport

if TYPE_CHECKING:
    from rich.console import Group

_TITLES = {"step_time": "Step time", "peak_memory": "Peak memory", "verdict": "Fits or not"}


def render(report: ValidationReport) -> "Group":
    """Tables of errors and verdicts, then every reason for which rows were skipped, then what could not be read."""
    from rich.console import Group
    from rich.text import Text

    apart = [{**entry, "source": f"  {entry['source']} {entry['part']}"} for entry in report.parts()]
    entries = sorted([*report.sources(), *apart], key=lambda entry: entry["source"].strip()) + report.totals()
    parts: list[Any] = []
    for quantity in ("step_time", "peak_memory"):
        of = [entry for entry in entries if entry["quantity"] == quantity]
        if of:
            parts.append(_errors_table(_TITLES[quantity], of))
    wide = [e for e in report.sources() if {"new_device", "unseen"} & set(e.get("classes", ()))]
    if wide:
        parts.append(_classes_table(wide))
    verdicts = [entry for entry in entries if entry["quantity"] == "verdict"]
    if verdicts:
        parts.append(_verdicts_table(verdicts))
    curve = report.verdict_curve()
    if curve:
        parts.append(_curve_table(curve))
    ranked = report.ranking()
    if ranked:
        parts.append(_ranking_table(ranked))
    skipped = [entry for entry in report.sources() if entry["skipped"]]
    if skipped:
        parts.append(_skipped_table(skipped))
    for text in (*report.ignored_files, *report.problems):
        parts.append(Text(text))
    parts.append(Text(f"calibration {report.calibration}; {_fitted(report)}"))
    return Group(*parts)


def _fitted(report: ValidationReport) -> str:
    """Whether the constants have seen these rows."""
    files = report.fitted_files
    if not files:
        return "none of these files is among those that its constants were fitted on"
    return (
        f"its constants were fitted on rows of {len(files)} of these files, so that errors here flatter it; "
        "docs/accuracy.md has those on rows held out and on whole sources left out"
    )


def _table(title: str, *columns: str) -> Any:
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right")
    return table


def _errors_table(title: str, entries: list[dict[str, Any]]) -> Any:
    table = _table(title, "source", "rows", "used", "median", "mean", "p90", "max", "bias", "in 80 %", "in 90 %")
    for entry in entries:
        figures = [percent(entry[key]) for key in ("median_ape", "mape", "p90_ape", "max_ape")]
        bias = "-" if entry["bias"] is None else f"{100 * entry['bias']:+.1f} %"
        covered = [percent(entry["coverage"][level], digits=0) for level in ("80", "90")]
        table.add_row(entry["source"], str(entry["rows"]), str(entry["used"]), *figures, bias, *covered)
    return table


def _verdicts_table(entries: list[dict[str, Any]]) -> Any:
    table = _table(_TITLES["verdict"], "source", "rows", "used", "correct", "at risk", "missed OOM", "false OOM")
    for entry in entries:
        counts = [str(entry[key]) for key in ("rows", "used", "correct", "at_risk", "missed_oom", "false_oom")]
        table.add_row(entry["source"], *counts)
    return table


def _curve_table(points: list[dict[str, Any]]) -> Any:
    columns = ("risk", "OOM rows", "called fitting", "missed at most", "roomy runs", "not called fitting")
    table = _table("Fits or not at every risk (95 % upper limit of the missed share)", *columns)
    for p in points:
        counts = (str(p["oom_rows"]), str(p["missed"]), percent(p["missed_at_most"]), str(p["roomy_rows"]))
        table.add_row(f"{p['risk']:g}", *counts, str(p["false_alarms"]))
    return table


def _classes_table(entries: list[dict[str, Any]]) -> Any:
    table = _table("Rows of stacks that published runs do not pin", "source", "new device", "unseen", "80 % interval")
    for entry in entries:
        classes, width = entry["classes"], entry["width"]["80"]
        counts = [str(classes.get(name, 0)) for name in ("new_device", "unseen")]
        table.add_row(entry["source"], *counts, "-" if width is None else f"x / {width**0.5:.2f}")
    return table


def _ranking_table(entries: list[dict[str, Any]]) -> Any:
    title = "Order of the configurations of one job"
    table = _table(title, "source", "jobs", "configurations", "median rho", "regret", "worst", "median configuration")
    for entry in entries:
        regrets = [percent(entry[key]) for key in ("mean_regret", "worst_regret", "blind_regret")]
        counts = [str(entry["groups"]), str(entry["configurations"]), f"{entry['median_spearman']:.2f}"]
        table.add_row(entry["source"], *counts, *regrets)
    return table


def _skipped_table(entries: list[dict[str, Any]]) -> Any:
    table = _table("Skipped", "source", "quantity", "rows", "reason")
    table.columns[1].justify = table.columns[3].justify = "left"
    for entry in entries:
        for reason, count in entry["skipped"].items():
            table.add_row(entry["source"], entry["quantity"], str(count), reason)
    return table


def percent(value: float | None, digits: int = 1) -> str:
    """A fraction as people read it."""
    return "-" if value is None else f"{100 * value:.{digits}f} %"
