"""Each hint appears from its threshold on, and names the change and its predicted effect."""

import re
from functools import cache
from typing import Any

import pytest

from cost_models.calibration import Calibration
from executor.creep import trend
from executor.errors import PlanRefused
from executor.hints import Thresholds, hints, thresholds
from executor.measured import RankReport, StepTimes, TimeSplit
from planner.calibrations import current
from planner.domain import Domain
from planner.plan import Plan
from planner.planning import estimate
from planner.request import PlanRequest


@cache
def plan(**changes: Any) -> Plan:
    request = {
        "model": "gpt2", "cluster": {"pools": [{"device": "a100-sxm-80gb", "nodes": 2, "gpus_per_node": 8}]},
        "training": {"sequence_length": 1024, "global_batch_size": 256}, "backend": "deepspeed",
        "configuration": {"zero_stage": 3, "micro_batch_size": 1, **changes},
    }  # fmt: skip
    return estimate(PlanRequest.read(request | {"model": {"preset": "gpt2"}}))


def split(**parts: float) -> TimeSplit:
    values = {"compute": 1.0, "communication": 0.0, "optimizer": 0.0, "offload": 0.0} | parts
    step = sum(values.values())
    return TimeSplit(step_seconds=step, communication_hidden=0.0, other=0.0, **values)


def rank(number: int = 0, **changes: Any) -> RankReport:
    values: dict[str, Any] = {
        "rank": number, "world_size": 2, "device": "cuda", "outcome": "ok", "steps_done": 20,
        "times": StepTimes(warmup_steps=3, seconds=(1.0, 1.0)), "allocated": None, "resident": {}, "losses": (),
        "versions": {}, "split": split(), "recent_seconds": 1.0, "data_wait_seconds": 0.0,
    }  # fmt: skip
    return RankReport(**values | changes)


def said(*ranks: RankReport, of: Plan | None = None, **limits: Any) -> dict[str, str]:
    return {h.name: h.text for h in hints(of or plan(gradient_accumulation_steps=16), ranks, Thresholds(**limits))}


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "communication": ({"split": split(communication=0.5)}, {"communication": 0.4}),
    "utilisation": ({"split": split(optimizer=1.5)}, {"utilisation": 0.3}),
    "data_wait": ({"data_wait_seconds": 0.2}, {"data_wait": 0.3}),
    "memory_creep": ({"resident_samples": tuple(enumerate(range(1000, 1320, 20)))}, {"memory_creep": 0.5}),
    "throttling": ({"recent_seconds": 1.3}, {"throttling": 1.5}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_hint_appears_beyond_its_threshold_alone(name: str) -> None:
    change, raised = CASES[name]
    assert name not in said(rank(), accumulation=99)
    assert name in said(rank(**change))
    assert name not in said(rank(**change), **raised)


def test_a_straggler_is_named() -> None:
    found = said(rank(0), rank(1), rank(2, split=split(compute=1.4)))
    assert "rank 2 computes for 1.4 s a step, the others for 1 s" in found["straggler"]
    assert "straggler" not in said(rank(0), rank(1, split=split(compute=1.1)))


def test_a_hot_device() -> None:
    assert "90 C" in said(rank(celsius=90.0))["throttling"]


def test_accumulation_names_the_micro_batch_and_what_it_gains() -> None:
    text = said(rank())["accumulation"]
    assert "accumulates 16 micro-batches, above 8: micro_batch_size 2 instead of 1 is predicted to take" in text
    found = re.search(r"to take (\S+) s a step instead of (\S+) s", text)
    assert found is not None
    assert float(found[1]) < float(found[2])
    assert "accumulation" not in said(rank(), of=plan(gradient_accumulation_steps=4, micro_batch_size=4))


def test_offload_slower_than_predicted() -> None:
    moved = plan(optimizer_layers_offloaded="all", gradient_accumulation_steps=16)
    assert moved.prediction is not None
    foretold = moved.prediction.time.breakdown_seconds["offload"]
    assert "offload" in said(rank(split=split(offload=2 * foretold)), of=moved)
    assert "offload" not in said(rank(split=split(offload=foretold)), of=moved)


def test_creep_says_when_memory_is_full() -> None:
    of = plan(gradient_accumulation_steps=16)
    assert of.prediction is not None
    usable = of.prediction.memory.usable_bytes
    samples = tuple((step, usable - (200 - step) * 10**6) for step in range(0, 100, 10))
    assert "1000000 bytes a step" in (text := said(rank(resident_samples=samples), memory_creep=0.0)["memory_creep"])
    assert text.endswith("else in about 110 more steps memory is full")


@pytest.mark.parametrize(
    "sizes",
    [
        [100, 120] * 8,  # up and down
        [100, 104, 110, 115, 119, 120, 120, 120, 120, 120, 120, 120, 120, 120, 120, 120],  # fills, then stays
        [100] * 15 + [200],  # once
        [200 - i for i in range(16)],  # falls
        [100 + i for i in range(7)],  # too few to tell
    ],
)
def test_a_heap_that_goes_up_and_down_or_fills_is_no_creep(sizes: list[int]) -> None:
    assert trend([(5 * i, size * 2**20) for i, size in enumerate(sizes)]) is None


def test_a_creep_is_told_through_noise() -> None:
    noise = (0, 3, -2, 1, 4, -3, 2, 0, -1, 3, 40, -2, 1, 0, 2, -3)
    found = trend([(i, 1000 + 10 * i + wobble) for i, wobble in enumerate(noise)])
    assert found is not None
    assert found.per_step == pytest.approx(10, rel=0.05)


def test_thresholds_are_read_and_slips_named() -> None:
    assert thresholds(["communication=0.4", "accumulation=16"]).accumulation == 16
    with pytest.raises(PlanRefused, match="give NAME=NUMBER with one of communication"):
        thresholds(["no_such=0.4"])


def test_advice_obeys_the_request_and_is_above_the_noise() -> None:
    free = said(rank())["accumulation"]
    assert "micro_batch_size 2 instead of 1" in free
    whole = plan(gradient_accumulation_steps=16)
    pinned = Domain(values=(1,))
    asked = whole.request.constraints.model_copy(update={"micro_batch_size": pinned})
    held = whole.model_copy(update={"request": whole.request.model_copy(update={"constraints": asked})})
    assert "micro_batch_size" not in said(rank(), of=held)["accumulation"]
    constants = current()
    noisy = {**constants.factors, "ranking_noise": constants.factors["ranking_noise"].model_copy(update={"value": 9.0})}
    deaf = Calibration(version="deaf", factors=noisy)
    text = next(hint.text for hint in hints(whole, [rank()], calibration=deaf) if hint.name == "accumulation")
    assert "by more than predictions can tell apart" in text
