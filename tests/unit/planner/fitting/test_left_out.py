"""Whole sources left out of a fit."""

import pytest

from cost_models.catalog import calibration
from planner.fitting.evidence import samples
from planner.fitting.fit import fitted
from planner.fitting.left_out import sources_left_out, with_looser_priors
from tests.unit.planner.fitting.rows import some


def test_a_source_is_predicted_by_the_others_and_the_headline_counts_full_runs() -> None:
    rows = [*some("torchtitan", 15), *some("bigscience", 40), *some("fitcheck", 20)]
    found = samples(rows)
    result = fitted(found, calibration())
    left = sources_left_out(result, found)
    assert [one.group for one in left] == [
        "bigscience a100", "fitcheck", "torchtitan", "full-parameter training on A100 and H100",
    ]  # fmt: skip
    named = {one.group: one for one in left}
    assert left[-1].rows == named["bigscience a100"].rows + named["torchtitan"].rows
    for one in left:
        assert 0 < one.median_ape < 1
        assert abs(one.bias) <= one.mape + one.median_ape
    tight, loose = with_looser_priors(result, found)
    assert all(0 < error < 1 for error in (*tight, *loose))


def test_a_source_whose_rows_are_scaled_is_found_out_only_when_left_out() -> None:
    """Half the time on every row of a source: in the fit its constants give in, left out they cannot."""
    rows = [*some("fitcheck", 30), *some("torchtitan", 15)]
    halved = [
        r.model_copy(update={"step_time_s": float(r.step_time_s or 0) / 2}) for r in rows if r.source == "fitcheck"
    ]
    found = samples([*halved, *[r for r in rows if r.source != "fitcheck"]])
    result = fitted(found, calibration())
    left = {one.group: one for one in sources_left_out(result, found)}
    assert left["fitcheck"].bias == pytest.approx(1.0, abs=0.5)
