"""The step: what it is bounded by, and the cuts that make the bound tight early."""

from ortools.sat.python import cp_model

from solver.constraints.variables import Variables, weighted
from solver.layout import Row


def build(model: cp_model.CpModel, row: Row, variables: Variables, *, least: int | None, most: int | None) -> None:
    """tail >= every stage's tail; S max t >= sum t; the known bound below, the cutoff and the time limit above."""
    for s, stage in enumerate(variables.stages):
        model.add(
            variables.tail
            >= row.tail_stage[s]
            + weighted(row.tail_layer[s], stage.kinds)
            + weighted(row.tail_offload[s], stage.offloaded_kinds)
        )
    if least is not None:
        model.add(variables.time >= least)
    limits = [limit for limit in (most, row.max_time) if limit is not None]
    if limits:
        model.add(variables.time <= min(limits))
