"""A site's rows, some of them wrong: what an update may move, and what never moves."""

import random
from functools import cache

import numpy as np
import pytest

from cost_models.calibration import Calibration
from cost_models.catalog import calibration
from planner.fitting import update
from planner.fitting.batches import Batches
from planner.fitting.evidence import samples
from planner.measurement import Measurement
from tests.scale import scaled
from tests.unit.planner.fitting.rows import as_measured_by, some

SLOWER = {"gemm_efficiency.a100.bf16": 0.9, "flash_efficiency.a100": 0.8, "elementwise_passes.fsdp": 1.2}
"""What is different at the site."""


@cache
def site() -> tuple[Measurement, ...]:
    """Runs on A100 as the site's constants make them."""
    rows = [row for row in some("llm-foundry", 200) if row.gpu.startswith("A100")]
    shipped = calibration()
    truth = shipped.scaled({name: factor * shipped(name) for name, factor in SLOWER.items()}, "truth")
    return tuple(as_measured_by(truth, rows))


def drawn(seed: int, count: int) -> tuple[list[Measurement], list[Measurement]]:
    """Rows that the site reports, and others that it does not."""
    rows = list(site())
    random.Random(seed).shuffle(rows)
    return rows[:count], rows[count : count + 20]


def miss(constants: Calibration, rows: list[Measurement]) -> float:
    """Mean absolute log error."""
    values = {key: factor.value for key, factor in constants.on("a100").factors.items()}
    return float(np.mean(np.abs(Batches(samples(rows), None).residuals(values))))


@pytest.mark.parametrize("seed", range(scaled(3, 20)))
def test_mislabelled_rows_do_not_spoil_an_update(seed: int) -> None:
    """One row in six is off by a factor of three, either way."""
    reported, others = drawn(seed, 18)
    chance = random.Random(seed)
    spoiled = [
        row.model_copy(update={"step_time_s": float(row.step_time_s or 0) * chance.choice((1 / 3, 3))})
        if index < 3
        else row
        for index, row in enumerate(reported)
    ]
    before, clean, dirty = (miss(update(calibration(), rows), others) for rows in ([], reported, spoiled))
    assert clean < 0.5 * before
    assert dirty < 0.8 * before


@pytest.mark.parametrize("seed", range(scaled(3, 20)))
def test_rows_of_pure_noise_never_cost_much(seed: int) -> None:
    """Times that have nothing to do with the configuration move predictions by less than they are off themselves."""
    reported, others = drawn(seed, 12)
    chance = random.Random(seed)
    noise = [
        row.model_copy(update={"step_time_s": float(row.step_time_s or 0) * chance.lognormvariate(0, 0.5)})
        for row in reported
    ]
    assert miss(update(calibration(), noise), others) < miss(calibration(), others) + 0.1


def test_the_order_of_rows_does_not_matter() -> None:
    reported, _ = drawn(0, 12)
    assert update(calibration(), reported).factors == update(calibration(), reported[::-1]).factors


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_below_five_rows_no_mean_moves_and_the_interval_widens(count: int) -> None:
    reported, others = drawn(1, count)
    updated = update(calibration(), reported)
    assert miss(updated, others) == miss(calibration(), others)
    assert updated.on("a100")("step_time_widening") > 1.0
    assert updated.on("h100")("step_time_widening") == 1.0


def test_rows_enough_to_move_take_the_widening_back() -> None:
    few, _ = drawn(1, 3)
    many, _ = drawn(2, 18)
    updated = update(update(calibration(), few), many)
    assert updated.on("a100")("step_time_widening") == 1.0


def test_no_rows_change_nothing() -> None:
    assert update(calibration(), []).factors == calibration().factors
