"""Order of configurations: rank correlation, regret, repeated runs."""

import pytest

from planner.validate.ranking import Ranked, rankings, ranks, spearman, summary

JOB = ("here", "model")


def rows(*pairs: tuple[float, float]) -> list[Ranked]:
    return [Ranked(JOB, (index,), measured, predicted) for index, (measured, predicted) in enumerate(pairs)]


def test_ranks_share_ties() -> None:
    assert ranks([3.0, 1.0, 3.0, 2.0]) == [3.5, 1.0, 3.5, 2.0]


def test_spearman_is_that_of_scipy() -> None:
    from scipy.stats import spearmanr

    left, right = [3.0, 1.0, 4.0, 1.5, 5.0, 9.0], [2.0, 7.0, 1.0, 8.0, 2.0, 8.5]
    assert spearman(left, right) == pytest.approx(float(spearmanr(left, right).statistic))


def test_no_order_has_no_correlation() -> None:
    assert spearman([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]) == 0.0


def test_regret_is_what_the_pick_loses() -> None:
    found = rankings(rows((10.0, 5.0), (12.0, 4.0), (20.0, 9.0), (30.0, 11.0)))
    assert len(found) == 1
    assert found[0].regret == pytest.approx(0.2)
    assert found[0].blind_regret == pytest.approx(0.6)
    assert summary("here", found)["median_spearman"] == pytest.approx(0.8)


def test_three_configurations_are_no_group() -> None:
    assert rankings(rows((1.0, 1.0), (2.0, 2.0), (3.0, 3.0))) == []


def test_repeated_runs_count_once() -> None:
    once = rows((1.0, 1.0), (2.0, 2.0), (3.0, 3.0), (4.0, 4.0))
    again = [Ranked(JOB, (0,), 9.0, 1.0), Ranked(JOB, (0,), 1.0, 1.0)]
    assert rankings(once + again)[0].configurations == 4
    assert rankings(once + again)[0].regret == pytest.approx(0.0)
