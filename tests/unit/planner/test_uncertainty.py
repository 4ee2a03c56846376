"""Intervals by what is known of a stack, and of a peak over its scenarios."""

from collections.abc import Mapping

import pytest

from cost_models.calibration import Calibration, Factor
from planner.datasets.jobs import Case
from planner.fitting.evidence import samples
from planner.fitting.memory import beyond, memory_factors
from planner.uncertainty import knowledge_class, memory_class, memory_interval, step_interval, within_noise
from planner.validate.comparison import Comparison
from tests.unit.planner.fitting.rows import some


def calibrated(values: Mapping[str, float]) -> Calibration:
    both = {"known_stack_runs": 5.0, "step_time_widening": 1.0, "ranking_noise": 0.05, **values}
    return Calibration(version="t", factors={k: Factor(value=v, source="this test") for k, v in both.items()})


def spread(name: str, low: float, high: float) -> dict[str, float]:
    return {
        f"step_time_{side}.{name}.{level}": v for level in ("80", "90") for side, v in (("low", low), ("high", high))
    }


def foundry() -> Case:
    """A run of FSDP on A100."""
    return next(s.case for s in samples(some("llm-foundry", 200)) if s.stack == ("fsdp", "a100"))


@pytest.mark.parametrize(
    ("runs", "known"),
    [
        ({"measured_runs.fsdp.a100": 5}, "known_stack"),
        ({"measured_runs.fsdp.a100": 4, "measured_runs.fsdp.h100": 3}, "new_device"),
        ({"measured_runs.megatron.a100": 50, "measured_runs.fsdp.a100": 4}, "unseen"),
    ],
)
def test_what_is_known_is_counted(runs: dict[str, float], known: str) -> None:
    case = foundry()
    constants = calibrated({**runs, **spread(known, 0.9, 1.2)})
    assert knowledge_class(case.job, case.configuration, constants) == known
    assert step_interval(case.job, case.configuration, constants, 10.0)["80"] == pytest.approx((9.0, 12.0))


def test_a_stack_with_errors_of_its_own_uses_them() -> None:
    case = foundry()
    own = spread("known_stack", 0.5, 2.0) | spread("fsdp.a100", 0.95, 1.05)
    constants = calibrated({"measured_runs.fsdp.a100": 90, **own})
    assert step_interval(case.job, case.configuration, constants, 1.0)["90"] == (0.95, 1.05)


def test_experts_have_their_own_class() -> None:
    case = next(s.case for s in samples(some("megatron-bridge", 80)) if s.moe)
    stack = f"{case.configuration.backend.name}.{case.job.device.family}"
    own = spread("known_stack", 0.9, 1.1) | spread(stack, 0.95, 1.05) | spread("known_stack_moe", 0.6, 1.4)
    constants = calibrated({f"measured_runs.{stack}": 90, **own})
    assert step_interval(case.job, case.configuration, constants, 1.0)["80"] == (0.6, 1.4)
    assert memory_class(case.job, case.configuration).startswith("megatron.moe")


def test_a_peak_spans_its_scenarios() -> None:
    case = foundry()
    factors = {
        f"memory_{side}.any.allocated.{level}": v for level in ("80", "90") for side, v in (("low", 0.9), ("high", 1.1))
    }
    found = memory_interval(case.job, case.configuration, calibrated(factors), "allocated", [10.0, 20.0])
    assert found["80"] == pytest.approx((9.0, 22.0))
    assert memory_interval(case.job, case.configuration, calibrated({}), "allocated", [10.0]) == {}


def test_the_error_of_a_peak_is_outside_its_scenarios() -> None:
    row = some("litgpt", 1)[0] if some("litgpt", 1) else some("llm-foundry", 1)[0]

    def error(measured: float) -> float:
        return beyond(
            Comparison(row, "peak_memory", measured=measured, predicted=10.0, scenarios=(("a", 10.0), ("b", 20.0)))
        )

    assert error(15.0) == 0.0
    assert error(22.0) == pytest.approx(0.09531, abs=1e-4)
    assert error(9.0) == pytest.approx(-0.10536, abs=1e-4)


def test_peaks_of_few_rows_state_no_class_of_their_own() -> None:
    row = some("llm-foundry", 1)[0].model_copy(update={"mem_kind": "allocated"})
    found = [
        Comparison(row.model_copy(update={"line": n}), "peak_memory", measured=11.0, predicted=10.0) for n in range(6)
    ]
    factors = memory_factors(found)
    assert {key.split(".")[1] for key in factors} == {"any"}
    assert factors["memory_high.any.allocated.90"].value == pytest.approx(1.1)


def test_within_noise() -> None:
    assert within_noise(0.05, calibrated({}))
    assert not within_noise(0.051, calibrated({}))
