"""Each constraint of the inner model alone: what it forbids, and what it leaves."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from ortools.sat.python import cp_model

from solver.constraints import device_memory, host_memory, layers, offload, recompute, step_time, variables
from solver.layout import Row, StageLayout, cost

ROW = Row(
    stages=2,
    virtual=1,
    micro_batches=4,
    order=(0,) * 6,
    even=False,
    mixed=True,
    recompute=2,
    offload=2,
    offloads=True,
    needs_full=False,
    constant=((10,), (20,)),
    layer=((((9, 6, 2),),),) * 2,
    working=(((1, 2, 7),),) * 2,
    selector=(1,),
    offload_saving=((3,), (3,)),
    capacity=(60, 60),
    host_constant=(5, 5),
    host_layer=((4,), (4,)),
    host_capacity=(30, 30),
    node_loads=((1, 0), (0, 1)),
    time_layer=(((10, 11, 15),),) * 2,
    time_stage=(5, 9),
    tail_stage=(1, 2),
    tail_layer=((1,), (1,)),
    tail_offload=((2,), (2,)),
    fixed=7,
)

Build = Callable[[cp_model.CpModel, Row, variables.Variables], None]


def allowed(row: Row, build: Build, **values: Any) -> bool:
    """Whether a constraint alone leaves an assignment; `full0=2` fixes the full layers of stage 0."""
    model = cp_model.CpModel()
    chosen = variables.build(model, row)
    build(model, row, chosen)
    for name, value in values.items():
        kind, stage = name[:-1], int(name[-1])
        model.add(getattr(chosen.stages[stage], kind) == value)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    return solver.solve(model) in (cp_model.OPTIMAL, cp_model.FEASIBLE)


def test_layers_sum_to_the_model() -> None:
    assert allowed(ROW, layers.build, layers0=2, layers1=4)
    assert not allowed(ROW, layers.build, layers0=2, layers1=3)


def test_even_layers_are_given() -> None:
    even = replace(ROW, even=True)
    assert allowed(even, layers.build, layers0=3)
    assert not allowed(even, layers.build, layers0=2)


def test_modes_cannot_exceed_layers() -> None:
    assert not allowed(ROW, layers.build, layers0=2, full0=2, selective0=1)


@pytest.mark.parametrize(
    ("ability", "values", "expected"),
    [
        ({"recompute": 0, "even": True}, {"full0": 3, "full1": 3}, True),
        ({"recompute": 0, "even": True}, {"full0": 3, "full1": 2}, False),
        ({"recompute": 0, "even": True}, {"full0": 3, "full1": 0}, False),
        ({"recompute": 1}, {"full0": 2, "full1": 2, "selective0": 0}, True),
        ({"recompute": 1}, {"full0": 2, "full1": 1}, False),
        ({"recompute": 1}, {"layers0": 2, "selective0": 2, "layers1": 4, "selective1": 4}, True),
        ({"recompute": 1}, {"layers0": 2, "selective0": 1}, False),
        ({"recompute": 1, "virtual": 2, "even": True, "order": (0,) * 8}, {"full0": 2}, True),
        ({"recompute": 1, "virtual": 2, "even": True, "order": (0,) * 8}, {"full0": 1}, False),
        ({"mixed": False}, {"full0": 1, "selective0": 1}, False),
        ({"mixed": True}, {"full0": 1, "selective0": 1}, True),
        ({"needs_full": True}, {"full0": 0, "full1": 0}, False),
    ],
)
def test_recomputation_is_what_the_back_end_can_say(
    ability: dict[str, Any], values: dict[str, int], expected: bool
) -> None:
    assert allowed(replace(ROW, **ability), recompute.build, **values) is expected


@pytest.mark.parametrize(
    ("ability", "values", "expected"),
    [
        ({}, {"layers0": 3, "offloaded0": 3}, True),
        ({}, {"layers0": 3, "offloaded0": 4}, False),
        ({}, {"offloaded0": 0, "offloaded1": 0}, False),
        ({"offload": 0}, {"layers0": 3, "offloaded0": 2}, False),
        ({"offload": 1}, {"offloaded0": 1, "offloaded1": 2}, False),
        ({"offload": 1}, {"offloaded0": 2, "offloaded1": 2}, True),
    ],
)
def test_offload_is_what_the_back_end_can_say(ability: dict[str, Any], values: dict[str, int], expected: bool) -> None:
    assert allowed(replace(ROW, **ability), offload.build, **values) is expected


def test_device_memory_counts_layers_working_set_and_savings() -> None:
    def build(model: cp_model.CpModel, row: Row, chosen: variables.Variables) -> None:
        device_memory.build(model, row, chosen, peak=False)

    plain = {"layers0": 5, "full0": 0, "selective0": 0, "offloaded0": 0}
    assert allowed(ROW, build, **plain), "10 + 5 x 9 + 1 = 56"
    assert not allowed(replace(ROW, capacity=(55, 60)), build, **plain)
    assert allowed(replace(ROW, capacity=(53, 60)), build, **{**plain, "offloaded0": 1})
    mixed = {"layers0": 5, "full0": 1, "selective0": 0, "offloaded0": 0}
    assert allowed(replace(ROW, capacity=(55, 60)), build, **mixed), (
        "10 + 4 x 9 + 2 + 7 = 55: the first layer's working set"
    )
    assert not allowed(replace(ROW, capacity=(54, 60)), build, **mixed)


def test_instants_that_another_covers_are_left_out() -> None:
    row = replace(
        ROW,
        constant=((10, 9), (20, 30)),
        layer=((((9, 6, 2),), ((9, 6, 2),)),) * 2,
        working=(((1, 2, 7), (1, 2, 7)),) * 2,
        selector=(1, 1),
    )
    assert device_memory.binding_instants(row, 0) == (0,)
    assert device_memory.binding_instants(row, 1) == (1,)
    assert device_memory.binding_instants(replace(row, selector=(1, 0)), 0) == (0, 1)


def test_host_memory_is_shared_by_the_stages_of_a_node() -> None:
    alone, together = ROW, replace(ROW, node_loads=((2, 2),), host_capacity=(30,))
    assert allowed(alone, host_memory.build, offloaded0=3, offloaded1=3)
    assert allowed(together, host_memory.build, offloaded0=1, offloaded1=0)
    assert not allowed(together, host_memory.build, offloaded0=2, offloaded1=1), "2 (5 + 8) + 2 (5 + 4) = 44 above 30"


def test_time_is_bounded_below_by_every_stage_and_above_by_the_limits() -> None:
    layout = {
        "layers0": 3,
        "layers1": 3,
        "full0": 0,
        "full1": 0,
        "selective0": 0,
        "selective1": 0,
        "offloaded0": 1,
        "offloaded1": 0,
    }
    exact = 3 * 39 + (35 + 39) + max(1 + 3 + 2, 2 + 3) + 7

    def build(most: int) -> Build:
        return lambda model, row, chosen: step_time.build(model, row, chosen, least=None, most=most)

    assert allowed(ROW, build(exact), **layout)
    assert not allowed(ROW, build(exact - 1), **layout)
    assert not allowed(replace(ROW, max_time=exact - 1), build(exact), **layout)
    assert cost(ROW, (StageLayout(3, offloaded=1), StageLayout(3))).time == exact
