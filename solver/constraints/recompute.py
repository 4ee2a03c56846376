"""Which recomputation a back end can lay out."""

from ortools.sat.python import cp_model

from solver.constraints.variables import Variables
from solver.layout import ONE_MODE, SAME_COUNT, Row


def build(model: cp_model.CpModel, row: Row, variables: Variables) -> None:
    """All layers alike, the same count in every stage, or any counts; two modes in one stage only where allowed."""
    if row.needs_full:
        model.add(sum(stage.full for stage in variables.stages) >= 1)
    if row.recompute == ONE_MODE:
        _one_mode(model, variables)
    elif row.recompute == SAME_COUNT:
        _same_count(model, row, variables)
    if not row.mixed:
        for stage in variables.stages:
            model.add(stage.has[1] + stage.has[2] <= 1)


def _one_mode(model: cp_model.CpModel, variables: Variables) -> None:
    chosen = [model.new_bool_var(f"all_mode{r}") for r in range(3)]
    model.add_exactly_one(chosen)
    for stage in variables.stages:
        for r in range(3):
            model.add(stage.has[r] == chosen[r])


def _same_count(model: cp_model.CpModel, row: Row, variables: Variables) -> None:
    selective = model.new_bool_var("all_selective")
    turns = model.new_int_var(0, row.num_layers // (row.stages * row.virtual), "full_per_chunk")
    model.add(turns <= row.num_layers * (1 - selective))
    for stage in variables.stages:
        model.add(stage.full == row.virtual * turns)
        model.add(stage.selective <= row.num_layers * selective)
        model.add(stage.selective >= stage.layers - row.num_layers * (1 - selective))
