"""The trade-off between missed failures and false alarms."""

import pytest

from planner.measurement import Measurement
from planner.validate.verdicts import JudgedRow, curve_table, missed_rows, trade_off, upper_share, verdict_section


def judged(outcome: str, probability: float, headroom: float | None = 0.5) -> JudgedRow:
    return JudgedRow(Measurement(source="made", outcome=outcome), probability, headroom)


ROWS = (
    judged("oom", 0.9), judged("oom", 0.02), judged("oom", 0.001), judged("ok", 0.001), judged("ok", 0.02),
    judged("ok", 0.5, headroom=0.05), judged("ok", 0.5, headroom=None),
)  # fmt: skip


@pytest.mark.parametrize(("risk", "missed", "alarms"), [(0.5, 2, 0), (0.01, 1, 1), (0.0005, 0, 2)])
def test_a_lower_risk_misses_less_and_alarms_more(risk: float, missed: int, alarms: int) -> None:
    (point,) = trade_off(ROWS, (risk,))
    assert (point.oom_rows, point.missed, point.roomy_rows, point.false_alarms) == (3, missed, 2, alarms)


@pytest.mark.parametrize(
    ("events", "trials", "share"),
    [(0, 18, 1 - 0.05 ** (1 / 18)), (0, 1, 0.95), (3, 3, 1.0), (0, 0, 1.0), (1, 10, 0.3942)],
)
def test_the_upper_limit_is_clopper_and_pearsons(events: int, trials: int, share: float) -> None:
    assert upper_share(events, trials) == pytest.approx(share, abs=2e-4)


def test_the_section_names_what_was_missed() -> None:
    assert [row.oom_probability for row in missed_rows(ROWS)] == [0.001]
    text = verdict_section(ROWS)
    assert curve_table(trade_off(ROWS)) in text
    assert "1 missed of 3 failures" in text
    assert "called fitting at 0.01" in text
