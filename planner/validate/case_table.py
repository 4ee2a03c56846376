"""Scores of user reports as tables for people."""

from typing import TYPE_CHECKING, Any

from planner.validate.cases import CaseReport

if TYPE_CHECKING:
    from rich.console import Group


def render_cases(report: CaseReport) -> "Group":
    """Scores per kind, answers that were wrong, and what the reports that were not judged lack."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    scores = Table(title="User reports", title_justify="left", box=None, pad_edge=False)
    for index, name in enumerate(("kind", "reports", "judged", "verdict right", "judged", "limit right", "both right")):
        scores.add_column(name, justify="left" if index == 0 else "right")
    entries = [*report.sources(), *report.totals()]
    for verdict, limit in zip(entries[::2], entries[1::2], strict=True):
        scores.add_row(
            verdict["source"], str(verdict["rows"]), str(verdict["used"]), _of(verdict, "accuracy"),
            str(limit["used"]), _of(limit, "accuracy"), _of(verdict, "accuracy_with_limit"),
        )  # fmt: skip
    wrong = Table(title="Wrong", title_justify="left", box=None, pad_edge=False)
    for name in ("report", "answer", "limit", "expected", "limits named"):
        wrong.add_column(name)
    skipped = Table(title="Not judged", title_justify="left", box=None, pad_edge=False)
    for name in ("report", "why"):
        skipped.add_column(name)
    for one in report.scored:
        if one.reason:
            skipped.add_row(one.case.id, one.reason)
        elif not one.right:
            wanted = one.expectation
            wrong.add_row(
                one.case.id, one.answer.verdict or "none", one.answer.limit or "none",
                ", ".join(sorted(wanted.verdicts)), ", ".join(sorted(wanted.limits)) or "none",
            )  # fmt: skip
    parts: list[Any] = [scores]
    parts += [table for table in (wrong, skipped) if table.row_count]
    parts += [Text(text) for text in report.problems]
    parts.append(Text(f"calibration {report.calibration}; labels and rules: docs/cases.md"))
    return Group(*parts)


def _of(entry: dict[str, Any], key: str) -> str:
    return "-" if entry[key] is None else f"{100 * entry[key]:.0f} %"
