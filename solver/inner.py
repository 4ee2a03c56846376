"""The inner problem of one row, solved by CP-SAT: layers, recomputation and offload of every stage.

One worker, a fixed seed and a limit in deterministic units: equal rows give equal answers on any machine.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from solver.layout import Cost, Layout, Row, cost

# Loading CP-SAT takes longer than most plans, which bounds alone often prove: the first row that needs it loads it.
if TYPE_CHECKING:
    from ortools.sat.python import cp_model

    from solver.constraints import variables

PARAMETERS: Final = {"num_workers": 1, "random_seed": 0}
"""What makes answers reproducible, beside the limit in deterministic units."""

Goal = Literal["time", "memory", "feasible"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What CP-SAT says about a row."""

    layout: Layout | None
    cost: Cost | None
    bound: float
    """No layout of the row does better; infinite when none exists within the cutoff."""
    closed: bool
    """The layout is optimal, or none exists."""


def solver(deterministic_time: float) -> "cp_model.CpSolver":
    """A CP-SAT solver whose answers are reproducible."""
    from ortools.sat.python import cp_model  # noqa: PLC0415

    engine = cp_model.CpSolver()
    for name, value in parameters(deterministic_time).items():
        setattr(engine.parameters, name, value)
    return engine


def parameters(deterministic_time: float) -> dict[str, float]:
    """Every parameter of the solver that is not its default, by CP-SAT's names."""
    return {**PARAMETERS, "max_deterministic_time": deterministic_time}


def build(
    row: Row, goal: Goal, *, least: int | None = None, most: int | None = None, hint: Layout | None = None
) -> "tuple[cp_model.CpModel, variables.Variables]":
    """The model of a row. `least` is a proven lower bound on its time, `most` the cutoff on the goal."""
    from ortools.sat.python import cp_model  # noqa: PLC0415

    from solver.constraints import (  # noqa: PLC0415
        communication,
        device_memory,
        host_memory,
        layers,
        offload,
        recompute,
        step_time,
        variables,
    )

    model = cp_model.CpModel()
    chosen = variables.build(model, row)
    layers.build(model, row, chosen)
    recompute.build(model, row, chosen)
    offload.build(model, row, chosen)
    device_memory.build(model, row, chosen, peak=goal == "memory")
    host_memory.build(model, row, chosen)
    step_time.build(model, row, chosen, least=least, most=most if goal == "time" else None)
    communication.build(model, row, chosen)
    if goal == "memory" and most is not None:
        model.add(chosen.memory <= most)
    if goal != "feasible":
        model.minimize(chosen.time if goal == "time" else chosen.memory)
    if hint is not None:
        chosen.hint(model, hint)
    return model, chosen


def solve_row(
    row: Row,
    goal: Goal,
    *,
    least: int | None = None,
    most: int | None = None,
    hint: Layout | None = None,
    deterministic_time: float,
) -> Answer:
    """The best layout of a row, or the proof that none meets the cutoff."""
    from ortools.sat.python import cp_model  # noqa: PLC0415

    model, chosen = build(row, goal, least=least, most=most, hint=hint)
    engine = solver(deterministic_time)
    status = engine.solve(model)
    assert status != cp_model.MODEL_INVALID, model.validate()
    if status == cp_model.INFEASIBLE:
        return Answer(layout=None, cost=None, bound=float("inf"), closed=True)
    if status == cp_model.UNKNOWN:
        return Answer(layout=None, cost=None, bound=float(least or 0), closed=False)
    layout = chosen.layout(engine)
    return Answer(
        layout=layout, cost=cost(row, layout), bound=engine.best_objective_bound, closed=status == cp_model.OPTIMAL
    )
