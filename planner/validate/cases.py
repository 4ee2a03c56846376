"""Scores answers to user reports: how many were judged, what the others lack, verdicts right, limits right."""

import csv
import io
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cost_models import catalog
from cost_models.calibration import Calibration
from planner.datasets.cases import UserCase, read_cases
from planner.validate.case_answer import Answer, answer
from planner.validate.case_labels import Expectation, expected

CASE_COLUMNS: Final = (
    "id", "kind", "ref", "judged", "reason", "verdict", "verdicts_expected", "verdict_right", "limit",
    "limits_expected", "limit_right", "missing", "assumed", "scenarios", "reasons", "device_bytes",
    "conservative_bytes", "host_bytes",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ScoredCase:
    """One report with the planner's answer and what was expected."""

    case: UserCase
    answer: Answer
    expectation: Expectation

    @property
    def reason(self) -> str:
        """Why the verdict is not judged; "" when it is.

        A report whose framework refused the configuration is always judged: not to see that is a fault.
        """
        if self.expectation.reason:
            return self.expectation.reason
        if self.answer.verdict is None and "illegal" not in self.expectation.verdicts:
            return f"missing: {', '.join(self.answer.missing) or 'unknown'}"
        return ""

    @property
    def limit_reason(self) -> str:
        """Why the limit is not judged."""
        return self.reason or ("" if self.expectation.limits else "the report names no limit")

    @property
    def verdict_right(self) -> bool:
        """Whether the verdict is one of those expected."""
        return self.answer.verdict in self.expectation.verdicts

    @property
    def limit_right(self) -> bool:
        """Whether the limit is one of those that the report names."""
        return self.answer.limit in self.expectation.limits

    @property
    def right(self) -> bool:
        """Verdict and, where the report names one, limit."""
        return self.verdict_right and (not self.expectation.limits or self.limit_right)


@dataclass(frozen=True, slots=True)
class CaseReport:
    """Every report of a file, scored."""

    scored: tuple[ScoredCase, ...]
    calibration: str
    problems: tuple[str, ...] = ()

    def sources(self) -> list[dict[str, Any]]:
        """Two entries per kind of report, in the order of their names."""
        kinds = sorted({one.case.kind for one in self.scored})
        return [entry for kind in kinds for entry in _entries(kind, [o for o in self.scored if o.case.kind == kind])]

    def totals(self) -> list[dict[str, Any]]:
        """The same over all kinds."""
        return _entries("all", self.scored)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data."""
        return {
            "sources": self.sources(),
            "totals": self.totals(),
            "calibration": self.calibration,
            "problems": list(self.problems),
            "ignored_files": [],
            "cases": [_row(one) for one in self.scored],
        }

    def to_json(self) -> str:
        """The report as JSON."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def rows_csv(self) -> str:
        """One line per report as CSV text; lists are joined by semicolons."""
        text = io.StringIO()
        writer = csv.DictWriter(text, CASE_COLUMNS, lineterminator="\n")
        writer.writeheader()
        for one in self.scored:
            row = {key: "; ".join(map(str, v)) if isinstance(v, list) else v for key, v in _row(one).items()}
            writer.writerow({key: "" if value is None else value for key, value in row.items()})
        return text.getvalue()


def score_cases(
    path: Path, calibration: Calibration | None = None, *, progress: Callable[[int, int], None] | None = None
) -> CaseReport:
    """Answer every report of a file and compare.

    Raises:
        DatasetUnreadable: the file cannot be read.
    """
    used = catalog.calibration() if calibration is None else calibration
    file = read_cases(path)
    scored = []
    for done, case in enumerate(file.cases, start=1):
        scored.append(ScoredCase(case, answer(case, used), expected(case)))
        if progress is not None:
            progress(done, len(file.cases))
    return CaseReport(tuple(scored), used.version, file.problems)


def _entries(source: str, of: Sequence[ScoredCase]) -> list[dict[str, Any]]:
    judged = [one for one in of if not one.reason]
    limits = [one for one in of if not one.limit_reason]
    return [
        _entry(source, "case_verdict", len(of), len(judged), [one.reason for one in of])
        | _share("correct", "accuracy", sum(one.verdict_right for one in judged), len(judged))
        | _share("correct_with_limit", "accuracy_with_limit", sum(one.right for one in judged), len(judged)),
        _entry(source, "case_limit", len(of), len(limits), [one.limit_reason for one in of])
        | _share("correct", "accuracy", sum(one.limit_right for one in limits), len(limits)),
    ]


def _entry(source: str, quantity: str, rows: int, used: int, reasons: list[str]) -> dict[str, Any]:
    skipped = Counter(reason for reason in reasons if reason)
    ordered = dict(sorted(skipped.items(), key=lambda item: (-item[1], item[0])))
    return {"source": source, "quantity": quantity, "rows": rows, "used": used, "skipped": ordered}


def _share(count: str, share: str, right: int, judged: int) -> dict[str, Any]:
    return {count: right, share: float(f"{right / judged:.6g}") if judged else None}


def _row(one: ScoredCase) -> dict[str, Any]:
    case, answered, wanted = one.case, one.answer, one.expectation
    judged = not one.reason
    return {
        "id": case.id, "kind": case.kind, "ref": case.ref, "judged": judged, "reason": one.reason,
        "verdict": answered.verdict, "verdicts_expected": sorted(wanted.verdicts),
        "verdict_right": one.verdict_right if judged else None, "limit": answered.limit,
        "limits_expected": sorted(wanted.limits), "limit_right": one.limit_right if not one.limit_reason else None,
        "missing": list(answered.missing), "assumed": list(answered.assumed),
        "scenarios": [f"{name}: {verdict}" for name, verdict in answered.scenarios],
        "reasons": list(answered.reasons), "device_bytes": _whole(answered.device_bytes),
        "conservative_bytes": _whole(answered.conservative_bytes), "host_bytes": _whole(answered.host_bytes),
    }  # fmt: skip


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
