"""A plan that was changed by hand is run as it reads, beside its own prediction, and never reported as the original."""

from pathlib import Path

import pytest

from cost_models.errors import BrokenRule
from executor.errors import PlanRefused
from executor.overrides import EDITED, as_it_reads
from executor.report import join
from executor.reporting import measurement, unreported
from planner.plan import Plan
from tests.unit.executor.plans import configuration, feasible
from tests.unit.executor.test_report import rank


def edited(**changes: object) -> Plan:
    return feasible().sealed().model_copy(update={"configuration": configuration(**changes)})


def test_a_plan_as_it_was_made_needs_no_word() -> None:
    plan = feasible().sealed()
    assert as_it_reads(plan) == (plan, ())


def test_an_edited_plan_is_priced_anew_and_said_to_be_edited() -> None:
    before = edited(micro_batch_size=1, gradient_accumulation_steps=2)
    plan, notes = as_it_reads(before)
    assert notes == (EDITED,)
    assert plan.edited
    assert plan.prediction is not None
    assert before.prediction is not None
    assert plan.prediction.time.step_seconds != before.prediction.time.step_seconds


def test_its_measurement_is_not_the_originals() -> None:
    plan, _ = as_it_reads(edited(micro_batch_size=1, gradient_accumulation_steps=2))
    report = join(plan, (rank(0), rank(1)), exit_status=0, directory=Path("d"))
    assert report.edited
    assert measurement(report) is None
    assert "changed after it was made" in (unreported(report) or "")
    original = join(feasible().sealed(), (rank(0), rank(1)), exit_status=0, directory=Path("d"))
    assert measurement(original) is not None


@pytest.mark.parametrize(
    ("changes", "both_sides"),
    [
        ({"micro_batch_size": 1}, "is 2 but training.global_batch_size is 4"),
        ({"data_parallel": 3}, "is 3 but the cluster has 2 GPUs"),
        ({"stages": [{"layers": 3, "recompute": {"none": 3}}]}, "hold 3 layers but num_hidden_layers is 2"),
    ],
)
@pytest.mark.parametrize("hashed", [True, False])
def test_parts_that_contradict_are_refused_with_or_without_a_hash(
    changes: dict[str, object], both_sides: str, hashed: bool
) -> None:
    plan = edited(**changes) if hashed else feasible(configuration=configuration(**changes))
    with pytest.raises(BrokenRule, match=both_sides):
        as_it_reads(plan)


def test_an_infeasible_status_beside_a_configuration_is_a_contradiction() -> None:
    with pytest.raises(PlanRefused, match="status is infeasible, and it holds a configuration for 2 processes"):
        as_it_reads(feasible(status="infeasible"))


def test_figures_of_another_model_are_marked() -> None:
    small = tuple(rank(number, allocated={"bytes": 30, "method": "tracker"}) for number in (0, 1))
    report = join(feasible(), small, exit_status=0, directory=Path("d"))
    assert report.suspect == "other_model"
    assert any("0.03 times" in hint for hint in report.hints)
    body = measurement(report)
    assert body is not None
    assert "suspect=other_model" in body["notes"]
    assert join(feasible(), (rank(0),), exit_status=0, directory=Path("d")).suspect is None
