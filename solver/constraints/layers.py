"""Every layer of the model is on exactly one stage."""

from ortools.sat.python import cp_model

from solver.constraints.variables import Variables
from solver.layout import Row


def build(model: cp_model.CpModel, row: Row, variables: Variables) -> None:
    """sum_s layers_s = L; the stages average to the slowest at most."""
    if not (row.even or row.given or row.stages == 1):
        model.add(sum(stage.layers for stage in variables.stages) == row.num_layers)
