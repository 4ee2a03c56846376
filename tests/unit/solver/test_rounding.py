"""Rounding never flatters: integers that fit mean bytes that fit, integer time is at least the real one."""

from dataclasses import replace

import numpy as np
import pytest

from cost_models import catalog
from cost_models.errors import BrokenRule
from cost_models.schedule import in_flight
from cost_models.table import price
from solver.rounding import (
    MEMORY_UNIT,
    TICK_SECONDS,
    check_exact,
    integer_time,
    rounding_ticks,
    stage_classes,
    stage_memory,
    ticks_down,
)
from solver.space import spaces
from tests.oracle.instances import instance


@pytest.mark.parametrize("seed", range(6))
def test_integer_coefficients_enclose_the_table(seed: int) -> None:
    case = instance(seed)
    for space in spaces(case.problem()):
        topology, feature = space.rows(np.arange(space.size))
        if not len(topology):
            continue
        strategy = space.strategy(topology, feature)
        table = price(case.job, strategy, catalog.calibration())
        ticks = integer_time(table.time)
        for name in ("layer", "stage", "layer_tail", "layer_offload", "stage_tail", "fixed"):
            exact, rounded = getattr(table.time, name), getattr(ticks, name) * TICK_SECONDS
            assert (rounded >= exact - 1e-15).all()
            assert (rounded - exact < TICK_SECONDS * (1 + 1e-6)).all()
        pp, v = np.asarray(strategy.pipeline_parallel), np.asarray(strategy.virtual_pipeline_stages)
        for stages in np.unique(pp):
            at = np.nonzero(pp == stages)[0]
            memory = table.memory.take(at)
            steps = np.asarray(strategy.gradient_accumulation_steps)[at]
            kib = stage_memory(memory, stages=int(stages), virtual=v[at], micro_batches=steps)
            flight = in_flight(np.arange(stages)[None], int(stages), v[at][:, None], steps[:, None])
            held = (
                np.maximum(np.asarray(flight)[:, :, None] - memory.released / v[at][:, None, None], 0)
                * memory.holds_activations
            )
            exact = memory.layer[:, 0][:, None, :] + held * memory.activation[:, 0, 0][:, None, None]
            assert (kib.layer[:, :, :, 0, 0] * MEMORY_UNIT >= exact).all()
            classes = stage_classes(int(stages))
            assert (kib.constant * MEMORY_UNIT >= memory.constant[:, classes]).all()
            assert (kib.offload_saving[:, 0] * MEMORY_UNIT <= memory.offload_saving).all()
            assert (kib.capacity[:, 0] * MEMORY_UNIT <= memory.capacity).all()
            assert (kib.host_capacity[:, 0] * MEMORY_UNIT <= memory.host_capacity).all()


def test_a_limit_is_rounded_down() -> None:
    assert ticks_down(1.99e-7) == 1
    assert ticks_down(20.0) == 200_000_000


def test_the_stated_rounding_is_small() -> None:
    ticks = rounding_ticks(stages=64, virtual=1, micro_batches=512, layers=128)
    assert ticks * TICK_SECONDS < 0.01


def test_sums_beyond_exact_integers_are_refused() -> None:
    pairs = ((case, s) for case in map(instance, range(6)) for s in spaces(case.problem()))
    case, space = next((case, s) for case, s in pairs if len(s.rows(np.arange(s.size))[0]))
    strategy = space.strategy(*(part[:1] for part in space.rows(np.arange(space.size))))
    table = price(case.job, strategy, catalog.calibration())
    steps = np.asarray(strategy.gradient_accumulation_steps)
    memory = stage_memory(
        table.memory, stages=1, virtual=np.asarray(strategy.virtual_pipeline_stages), micro_batches=steps
    )
    layers, time = case.job.model.num_hidden_layers, integer_time(table.time)
    check_exact(memory, time, layers=layers, steps=steps)
    with pytest.raises(BrokenRule, match="time adds up to"):
        check_exact(memory, replace(time, layer=time.layer + 2.0**53), layers=layers, steps=steps)
    with pytest.raises(BrokenRule, match="host memory adds up to"):
        check_exact(replace(memory, host_layer=memory.host_layer + 2.0**53), time, layers=layers, steps=steps)
