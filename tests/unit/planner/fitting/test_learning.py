"""A site's runs become its constants: what they move, what is set aside, what drifts, what ran out of memory."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from math import log
from typing import Any

import pytest

from cost_models.calibration import Calibration, Factor
from cost_models.catalog import calibration, check_calibration
from cost_models.errors import SpecError
from cost_models.ledger import MemoryLedger
from cost_models.memory import memory_ledger
from planner.fitting.drift import drifts, noted
from planner.fitting.learning import Learned, learn
from planner.fitting.site_runs import RunPlan, SiteRun, foretold, seen
from planner.prediction import memory_prediction
from tests.unit.planner.fitting.site import BEGUN, Change, plans, reported, together

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


def heavier(factor: float) -> Change:
    """Every run holds so much more than is predicted."""

    def spoil(_: int, figures: dict[str, Any]) -> dict[str, Any]:
        return {**figures, "peak_allocated_bytes": round(figures["peak_allocated_bytes"] * factor)}

    return spoil


def memories(constants: Calibration, of: Sequence[RunPlan] | None = None) -> list[MemoryLedger]:
    return [foretold(plan.question, plan.configuration, constants).memory for plan in of or plans()]


def most_held(of: RunPlan) -> float:
    return max(float(run.peak_allocated_bytes or 0) for run in of.runs)


def test_plans_expect_the_peaks_that_were_measured() -> None:
    runs = reported(12, spoil=heavier(1.12), noise=0.02)
    learned = learn(calibration(), runs)
    for plan, ledger in zip(runs, memories(learned.calibration), strict=True):
        fixed = ledger.context_bytes + ledger.communicator_bytes
        assert ledger.conservative_bytes >= most_held(plan) * ledger.fragmentation_quantile + fixed
        assert ledger.allocated_median == pytest.approx(1.12, rel=0.01)
        said = foretold(plan.question, plan.configuration, learned.calibration)
        at_level = memory_ledger(said.job, said.configuration, learned.calibration, oom_risk=0.05)
        printed = memory_prediction(at_level, oom_risk=0.05).allocated
        low, high = said.intervals["peak_allocated_bytes"]
        assert (printed.lower_bytes, printed.upper_bytes) == pytest.approx((low, high), rel=1e-6), (
            "drift's are the plan's"
        )
        assert printed.lower_bytes < most_held(plan) < printed.upper_bytes
    assert not any(one.drifting for one in learned.drift)
    raised = {key for key in learned.calibration.factors.keys() - calibration().factors.keys() if "allocated" in key}
    assert raised == {f"allocated_{name}.eager@a100" for name in ("median", "q99", "q01")}
    check_calibration(learned.calibration)
    wrong = Factor(value=1e-3, source="nobody")
    factors = {**learned.calibration.factors, "allocated_median.eager@a100": wrong}
    with pytest.raises(SpecError, match="allocated_median"):
        check_calibration(learned.calibration.model_copy(update={"factors": factors}))


def test_a_plan_that_cannot_fit_by_what_was_measured_does_not() -> None:
    learned = learn(calibration(), reported(12, spoil=heavier(1.12)))
    ledger = memories(calibration())[0]
    after = memories(learned.calibration)[0]
    fixed = ledger.context_bytes + ledger.communicator_bytes
    usable = ledger.allocated_bytes * 1.12 * ledger.fragmentation_median * 0.99 + fixed
    tight, taught = (replace(one, usable_bytes=usable) for one in (ledger, after))
    assert tight.fits
    assert tight.oom_probability(0.01) < 0.01
    assert not taught.fits
    assert taught.oom_probability(0.01) > 0.5
    assert memory_prediction(taught, oom_risk=0.01).verdict == "does_not_fit"


def test_peaks_as_predicted_change_no_plan() -> None:
    assert memories(learned_from(24).calibration) == memories(calibration())


def test_one_heavy_run_moves_no_memory() -> None:
    def spoil(number: int, figures: dict[str, Any]) -> dict[str, Any]:
        return heavier(1.5)(number, figures) if number == 4 else figures

    learned = learn(calibration(), reported(24, spoil=spoil))
    assert ("run-004", "peak_allocated_bytes") in asides(learned)
    assert memories(learned.calibration) == memories(calibration())


def test_a_run_that_is_odd_but_possible_widens_to_itself_and_shifts_nothing() -> None:
    def spoil(number: int, figures: dict[str, Any]) -> dict[str, Any]:
        return heavier(1.2)(number, figures) if number == 4 else figures

    learned = memories(learn(calibration(), reported(12, spoil=spoil)).calibration)[0]
    assert learned.allocated_median == pytest.approx(1.0, abs=0.005)
    assert learned.allocated_quantile == pytest.approx(1.2, rel=0.02)


def test_less_memory_is_believed_of_enough_plans_alone() -> None:
    few = [plan for plan in plans() if plan.configuration.micro_batch_size == 1][:2]
    lighter = reported(12, spoil=heavier(0.9), known=few)
    before, after = memories(calibration(), few)[0], memories(learn(calibration(), lighter).calibration, few)[0]
    assert after.conservative_bytes == before.conservative_bytes
    many = memories(learn(calibration(), reported(24, spoil=heavier(0.9))).calibration)[0]
    assert 0.9 < many.allocated_median < 0.92
    assert many.conservative_bytes < memories(calibration())[0].conservative_bytes


def test_fewer_runs_than_ten_correct_no_memory() -> None:
    learned = learn(calibration(), reported(9, spoil=heavier(1.12)))
    assert memories(learned.calibration) == memories(calibration())


def test_running_out_raises_every_regime_of_the_back_end() -> None:
    every = plans(backend="megatron")
    plan = max(every, key=lambda one: memories(calibration(), [one])[0].allocated_bytes)
    oom = SiteRun(ref="oom", at=BEGUN, outcome="oom", requested_bytes=10**15)
    learned = learn(calibration(), [plan.model_copy(update={"runs": (oom,)})])
    assert {key for key in learned.raised if key.startswith("fragmentation.")} == {
        "fragmentation.megatron@a100", "fragmentation.megatron_moe@a100", "fragmentation.megatron_pipeline@a100",
    }  # fmt: skip
    values = {learned.calibration.factors[key].value for key in learned.raised if key.startswith("fragmentation.")}
    assert len(values) == 1, "what does not fit in one fits in no other"
    assert asides(learned) == {("oom", "requested_bytes")}
    assert learned.used == ("oom",)
    assert not memories(learned.calibration, [plan])[0].fits


@pytest.mark.parametrize("slower", [1.25, 1.7])
def test_more_runs_that_agree_never_undo_what_fewer_moved(slower: float) -> None:
    """At 1.7 constants reach the ends of what their priors allow, and stay there."""
    plan = plans()[0]

    def ratio(count: int) -> float:
        learned = learn(calibration(), reported(count, slower=slower, noise=0.005)).calibration
        before, after = (foretold(plan.question, plan.configuration, c) for c in (calibration(), learned))
        return after.values["step_seconds"] / before.values["step_seconds"]

    ratios = [ratio(count) for count in (8, 14, 20)]
    assert 1.1 < ratios[0] < slower
    assert all(later > earlier - 0.02 for earlier, later in pairwise(ratios))
