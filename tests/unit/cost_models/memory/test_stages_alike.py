"""Stages that are alike are priced once: the ledger of each is what it would be alone."""

import pytest

from cost_models.memory import explain
from cost_models.memory.instants import INSTANTS, constant_terms
from cost_models.memory.pieces import Pieces
from cost_models.memory.setting import Terms
from tests.unit.cost_models.memory.cases import ledger

HALF = {"layers": 1, "recompute": {"none": 1}}


def test_equal_middle_stages_differ_by_their_micro_batches_alone() -> None:
    named = ledger(backend="megatron", pipeline_parallel=8, gradient_accumulation_steps=64, stages=[HALF] * 8)
    second, third = (named.stages[i].instants["backward_first_layer"] for i in (1, 2))
    assert second.keys() == third.keys()
    differing = {name for name in second if second[name] != pytest.approx(third[name])}
    assert differing
    assert all("activations" in name for name in differing)
    assert all(second[name] > third[name] for name in differing)


def test_the_terms_of_equal_stages_are_evaluated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []

    def noted(pieces: Pieces, stage_class: int, instant: int) -> Terms:
        seen.append((stage_class, instant))
        return constant_terms(pieces, stage_class, instant)

    monkeypatch.setattr(explain, "constant_terms", noted)
    ledger(backend="megatron", pipeline_parallel=8, gradient_accumulation_steps=64, stages=[HALF] * 8)
    assert len(seen) == len(set(seen)) == 3 * len(INSTANTS)
