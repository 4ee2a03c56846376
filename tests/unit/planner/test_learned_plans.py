"""Plans made with what a site's runs said: drift is warned of, what ran out of memory is not planned again."""

from datetime import UTC, datetime

from cost_models.catalog import calibration
from planner.fitting.drift import drifts, noted
from planner.fitting.learning import learn
from planner.fitting.site_runs import RunPlan, SiteRun, seen
from planner.plan import Plan
from planner.planning import estimate, plan
from planner.request import PlanRequest
from tests.unit.planner.requests import SMALL, changed

AT = datetime(2026, 11, 1, tzinfo=UTC)


def run_of(made: Plan, *runs: SiteRun) -> RunPlan:
    assert made.configuration is not None
    return RunPlan(question=made.request, configuration=made.configuration, runs=runs)


def test_a_plan_that_ran_out_of_memory_is_not_made_again() -> None:
    free = plan(PlanRequest.read(SMALL))
    assert free.prediction is not None
    tight = changed("cluster.pools.0.usable_memory", round(free.prediction.memory.conservative_bytes * 1.01), SMALL)
    tight = changed("constraints.oom_risk", 0.2, tight)
    before = plan(PlanRequest.read(tight))
    assert before.configuration == free.configuration
    learned = learn(calibration(), [run_of(before, SiteRun(ref="1", at=AT, outcome="oom"))])
    after = plan(PlanRequest.read(tight), learned.calibration)
    assert after.status in {"optimal", "infeasible"}
    assert after.configuration != before.configuration
    stated = {**tight, "configuration": free.to_dict()["configuration"]}
    again = estimate(PlanRequest.read(stated), learned.calibration)
    assert again.prediction is not None
    assert again.prediction.memory.verdict == "does_not_fit"


def test_a_drift_is_warned_of_on_its_device_alone() -> None:
    made = plan(PlanRequest.read(SMALL))
    assert made.prediction is not None
    slow = made.prediction.time.interval_seconds["90"][1] * 1.5
    runs = [SiteRun(ref=str(n), at=AT, outcome="ok", step_seconds=slow) for n in range(5)]
    constants = noted(calibration(), drifts(seen([run_of(made, *runs)], calibration())[0]))
    stated = {**SMALL, "configuration": made.to_dict()["configuration"]}
    warned = estimate(PlanRequest.read(stated), constants)
    [warning] = [text for text in warned.warnings if text.startswith("drift")]
    assert "the last runs of deepspeed on a100 had steps of" in warning
    assert warned.prediction is not None
    assert warned.prediction.time == made.prediction.time
    elsewhere = changed("cluster.pools.0.device", "h100-sxm-80gb", stated)
    assert not [text for text in estimate(PlanRequest.read(elsewhere), constants).warnings if text.startswith("drift")]


def test_a_plan_that_measured_peaks_do_not_let_fit_is_not_made_again() -> None:
    free = plan(PlanRequest.read(SMALL))
    assert free.prediction is not None
    tight = changed("cluster.pools.0.usable_memory", round(free.prediction.memory.conservative_bytes * 1.05), SMALL)
    before = plan(PlanRequest.read(tight))
    assert before.prediction is not None
    held = round(before.prediction.memory.allocated.median_bytes * 1.12)
    runs = [SiteRun(ref=str(n), at=AT, outcome="ok", peak_allocated_bytes=held) for n in range(12)]
    learned = learn(calibration(), [run_of(before, *runs)])
    after = plan(PlanRequest.read(tight), learned.calibration)
    assert after.status in {"optimal", "infeasible"}
    assert after.configuration != before.configuration
    stated = {**tight, "configuration": before.to_dict()["configuration"]}
    again = estimate(PlanRequest.read(stated), learned.calibration)
    assert again.prediction is not None
    memory = again.prediction.memory
    assert memory.verdict != "fits"
    assert memory.oom_probability > 0.01
    assert memory.allocated.lower_bytes <= held <= memory.allocated.upper_bytes
    assert abs(sum(memory.breakdown_bytes.values()) - memory.allocated.median_bytes) <= len(memory.breakdown_bytes)


def test_runs_that_no_constant_follows_are_warned_of() -> None:
    made = plan(PlanRequest.read(SMALL))
    assert made.prediction is not None
    stated = {**SMALL, "configuration": made.to_dict()["configuration"]}

    def warned(slower: float) -> list[str]:
        assert made.prediction is not None
        seconds = made.prediction.time.step_seconds * slower
        runs = [SiteRun(ref=str(n), at=AT, outcome="ok", step_seconds=seconds * (1 + n / 1000)) for n in range(4)]
        constants = learn(calibration(), [run_of(made, *runs)]).calibration
        found = estimate(PlanRequest.read(stated), constants).warnings
        return [text for text in found if text.startswith("no constant follows")]

    [warning] = warned(1.4)
    assert "runs of deepspeed on a100: steps took 1.4 times those predicted (4 runs, too few" in warning
    assert warned(1.0) == []
