"""Public reports that no rule was written from: how general the reader of user cases is."""

from pathlib import Path

import pytest

from planner.validate.cases import CaseReport, score_cases

REPORTS = Path(__file__).parent / "data" / "user_reports.jsonl"
"""Read from the public issues that each `ref` names, after the rules of docs/cases.md were settled."""
FEWEST_RIGHT = 0.7
"""Verdicts. Of the four that are wrong two are host memory at the edge, one is at risk, and one a 2020 Megatron-LM."""


@pytest.fixture(scope="module")
def report() -> CaseReport:
    return score_cases(REPORTS)


def test_nearly_all_of_them_state_enough(report: CaseReport) -> None:
    assert report.problems == ()
    unjudged = {one.case.id: one.reason for one in report.scored if one.reason}
    assert unjudged == {"r-14": "missing: seq_len"}


def test_verdicts(report: CaseReport) -> None:
    judged = [one for one in report.scored if not one.reason]
    assert sum(one.verdict_right for one in judged) >= FEWEST_RIGHT * len(judged)


def test_limits(report: CaseReport) -> None:
    judged = [one for one in report.scored if not one.limit_reason]
    assert [one.case.id for one in judged if not one.limit_right] == []
