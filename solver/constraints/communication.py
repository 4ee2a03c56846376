"""The share of communication: of every stage that may be the slowest, and every tail that may be the longest."""

from collections.abc import Iterable
from typing import Any

from ortools.sat.python import cp_model

from solver.communication import near
from solver.constraints.variables import Variables, weighted
from solver.layout import Row
from solver.problem import PARTS


def build(model: cp_model.CpModel, row: Row, variables: Variables) -> None:
    """PARTS v (m C + H + f) <= most (time - rounding), with C and H at least those of the stages in question."""
    limit = row.communication
    if limit is None:
        return
    kinds, close = range(row.kinds), near(row.num_layers)
    working, ending, tails = [], [], []
    for s, stage in enumerate(variables.stages):
        modes = sum(limit.layer[s][j][r] * stage.by_mode[r][j] for j in kinds for r in range(3))
        working.append(limit.stage[s] + modes)
        ending.append(limit.tail_stage[s] + weighted(limit.tail_layer[s], stage.kinds))
        moved = weighted(row.tail_offload[s], stage.offloaded_kinds)
        tails.append(row.tail_stage[s] + weighted(row.tail_layer[s], stage.kinds) + moved)
    layer, tail = [c for of_stage in limit.layer for of_kind in of_stage for c in of_kind], sum(limit.tail_layer, ())
    spent = model.new_int_var(0, max(limit.stage) + row.num_layers * max(layer), "communication")
    last = model.new_int_var(0, max(limit.tail_stage) + row.num_layers * max(tail), "communication_tail")
    _hold(model, spent, variables.slowest, zip(variables.times, working, strict=True), close[0])
    _hold(model, last, variables.tail, zip(tails, ending, strict=True), close[1])
    communication = row.virtual * (row.micro_batches * spent + last + limit.fixed)
    model.add(PARTS * communication <= limit.most * (variables.time - limit.rounding))


def _hold(model: cp_model.CpModel, most: Any, longest: Any, parts: Iterable[tuple[Any, Any]], close: int) -> None:
    """`most` is at least the part of every value that is close to the longest, which is one of them."""
    reached = []
    for value, part in parts:
        here, far = model.new_bool_var(""), model.new_bool_var("")
        model.add(value >= longest).only_enforce_if(here)
        model.add(value <= longest - close - 1).only_enforce_if(far)
        model.add(most >= part).only_enforce_if(~far)
        reached.append(here)
    model.add_bool_or(reached)
