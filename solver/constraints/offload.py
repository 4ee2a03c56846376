"""How many layers of a stage keep their optimizer states on the host."""

from ortools.sat.python import cp_model

from solver.constraints.variables import Variables
from solver.layout import ALL_OR_NONE, SAME_COUNT, Row


def build(model: cp_model.CpModel, row: Row, variables: Variables) -> None:
    """None to all of the stage's layers, at least one in all; all or equally many where the back end says so."""
    if not row.offloads:
        return
    for stage in variables.stages:
        model.add(stage.offloaded <= stage.layers)
        if row.offload == ALL_OR_NONE:
            model.add(stage.offloaded == stage.layers)
        if row.offload == SAME_COUNT:
            model.add(stage.offloaded == variables.stages[0].offloaded)
    model.add(sum(stage.offloaded for stage in variables.stages) >= 1)
