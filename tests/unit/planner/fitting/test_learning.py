"""A site's runs become its constants: what they move, what is set aside, what drifts, what ran out of memory."""

from functools import cache
from math import log
from typing import Any

import pytest

from cost_models.calibration import Calibration
from cost_models.catalog import calibration
from planner.fitting.drift import drifts, noted
from planner.fitting.learning import Learned, learn
from planner.fitting.site_runs import RunPlan, SiteRun, foretold, seen
from tests.unit.planner.fitting.site import BEGUN, plans, reported, together

SLOWER = {"gemm_efficiency.a100.bf16": 0.8, "flash_efficiency.a100": 0.8, "elementwise_passes.fsdp": 1.25}
"""What is different at the site."""


@cache
def truth() -> Calibration:
    shipped = calibration()
    return shipped.scaled({name: factor * shipped(name) for name, factor in SLOWER.items()}, "truth")


@cache
def learned_from(count: int) -> Learned:
    """Honest runs."""
    return learn(calibration(), reported(count, truth=truth()))


def miss(constants: Calibration, of: list[RunPlan]) -> float:
    """Mean absolute log error of the times."""
    logs = [abs(log(one.ratio("step_seconds") or 1.0)) for one in seen(of, constants)[0]]
    return sum(logs) / len(logs)


def outliers(number: int, figures: dict[str, Any]) -> dict[str, Any]:
    """One run in five is three times too slow, or too fast, and holds twice the memory."""
    factor = {1: 3.0, 6: 1 / 3}.get(number % 10, 1.0)
    if factor == 1.0:
        return figures
    return {name: value * (factor if name == "step_seconds" else 2) for name, value in figures.items()}


def asides(learned: Learned) -> set[tuple[str, str]]:
    return {(one.ref, one.quantity) for one in learned.set_aside}


def test_a_consistent_site_is_learned() -> None:
    runs, learned = reported(24, truth=truth()), learned_from(24)
    assert learned.set_aside == ()
    assert len(learned.used) == 24
    assert learned.families[0].moved
    judged = reported(12, truth=truth(), noise=0.0, seed=1)
    assert miss(learned.calibration, judged) < 0.06
    assert miss(calibration(), judged) > 0.18
    assert not any(one.drifting for one in learned.drift)
    said = foretold(runs[0].question, runs[0].configuration, learned.calibration)
    low, high = said.intervals["step_seconds"]
    assert 1.02 < high / low < 1.3, "intervals are the site's own"


def test_one_outlier_in_five_is_set_aside_and_moves_nothing() -> None:
    clean, dirty = learned_from(30), learn(calibration(), reported(30, truth=truth(), spoil=outliers))
    spoiled = {run for run, _ in asides(dirty)}
    assert spoiled == {f"run-{number:03d}" for number in range(30) if number % 5 == 1}
    assert len(asides(dirty)) == 12
    judged = reported(12, truth=truth(), noise=0.0, seed=1)
    assert miss(dirty.calibration, judged) < miss(clean.calibration, judged) + 0.02
    wide = [
        foretold(plans()[0].question, plans()[0].configuration, one.calibration).intervals["step_seconds"]
        for one in (clean, dirty)
    ]
    assert wide[1][1] / wide[1][0] < 1.5 * wide[0][1] / wide[0][0], "nor do intervals stretch to it"


@pytest.mark.parametrize(
    ("figures", "quantity", "why"),
    [
        ({"peak_allocated_bytes": 22}, "peak_allocated_bytes", "as if it were in G"),
        ({"step_seconds": 2400.0}, "step_seconds", "as if it were in milliseconds"),
        ({"step_seconds": 1e-3}, "step_seconds", "faster than the peak of its devices"),
        ({"peak_allocated_bytes": 2**37}, "peak_allocated_bytes", "as if|more than the"),
    ],
)
def test_mislabelled_figures_are_set_aside(figures: dict[str, Any], quantity: str, why: str) -> None:
    def spoil(number: int, good: dict[str, Any]) -> dict[str, Any]:
        return {**good, **figures} if number == 7 else good

    learned = learn(calibration(), reported(24, truth=truth(), spoil=spoil))
    [aside] = learned.set_aside
    assert (aside.ref, aside.quantity) == ("run-007", quantity)
    assert any(part in aside.why for part in why.split("|")), aside.why
    judged = reported(12, truth=truth(), noise=0.0, seed=1)
    assert miss(learned.calibration, judged) < miss(learned_from(24).calibration, judged) + 0.01


def test_runs_of_another_device_are_set_aside() -> None:
    """Three runs whose plan says A100 were on something 2.6 times as fast."""

    def spoil(number: int, good: dict[str, Any]) -> dict[str, Any]:
        return {**good, "step_seconds": good["step_seconds"] / 2.6} if number in (3, 10, 17) else good

    learned = learn(calibration(), reported(36, truth=truth(), spoil=spoil))
    assert {run for run, quantity in asides(learned) if quantity == "step_seconds"} == {"run-003", "run-010", "run-017"}


def test_drift_is_seen_within_a_few_runs_and_not_by_one_or_two() -> None:
    before = reported(24, truth=truth())
    constants = learned_from(24).calibration

    def told(count: int) -> list[float]:
        later = reported(count, truth=truth(), slower=1.4, first=24, seed=2)
        found = drifts(seen(together(before, later), constants)[0])
        return [one.ratio for one in found if one.drifting]

    assert [len(told(count)) for count in (0, 1, 2, 3)] == [0, 0, 0, 0]
    assert told(4)[0] == pytest.approx(1.4, rel=0.1)
    one_wrong = reported(1, slower=3.0, first=24)
    assert not any(one.drifting for one in drifts(seen(together(before, one_wrong), constants)[0]))


def test_a_drift_is_noted_until_it_is_over() -> None:
    constants = learned_from(24).calibration
    slow = reported(5, truth=truth(), slower=1.4, first=24)
    warned = noted(constants, drifts(seen(slow, constants)[0]))
    [note] = [key for key in warned.factors if key.startswith("drift.")]
    assert note == "drift.step_seconds.fsdp@a100"
    again = noted(warned, drifts(seen(slow, warned)[0]))
    assert again is warned
    well = reported(5, truth=truth(), first=29)
    assert noted(warned, drifts(seen(together(slow, well), warned)[0])).factors == constants.factors


def test_a_plan_that_ran_out_of_memory_is_not_safe_again() -> None:
    plan = max(plans(), key=lambda p: foretold(p.question, p.configuration, calibration()).memory.conservative_bytes)
    before = foretold(plan.question, plan.configuration, calibration()).memory
    assert before.fits
    oom = SiteRun(ref="oom", at=BEGUN, outcome="oom", requested_bytes=2**30)
    learned = learn(calibration(), [plan.model_copy(update={"runs": (oom,)})])
    after = foretold(plan.question, plan.configuration, learned.calibration).memory
    assert not after.fits
    assert after.oom_probability(0.01) > 0.5 > before.oom_probability(0.01)
    assert learned.used == ("oom",)
    assert learned.raised
    assert after.allocated_bytes == before.allocated_bytes


def test_a_failure_that_fuller_runs_contradict_is_set_aside() -> None:
    plan = min(plans(), key=lambda p: foretold(p.question, p.configuration, calibration()).memory.conservative_bytes)
    oom = SiteRun(ref="oom", at=BEGUN, outcome="oom")
    others = [p for p in reported(24) if p.configuration != plan.configuration]
    learned = learn(calibration(), [*others, plan.model_copy(update={"runs": (oom,)})])
    assert learned.raised == ()
    assert ("oom", "oom") in asides(learned)


def test_no_runs_are_no_change() -> None:
    learned = learn(calibration(), [])
    assert learned.calibration.factors == calibration().factors
    assert learned.used == ()
