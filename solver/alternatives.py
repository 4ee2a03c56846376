"""Runners-up: the best configurations that differ from the winner in structure, and why each lost."""

import numpy as np

from solver.bounds.row import layout_of, row_bounds
from solver.incumbent import Incumbent
from solver.layout import Layout, Row, cost, expressible
from solver.problem import Problem
from solver.rounding import seconds
from solver.solution import Alternative
from solver.standing import Open, Standing
from solver.verify import configuration

TELLING = (
    "backend",
    "tensor_parallel",
    "context_parallel",
    "pipeline_parallel",
    "expert_parallel",
    "data_parallel",
    "zero_stage",
)
"""Columns by which two plans are different plans."""


def _signature(open_: Open) -> tuple[int, ...]:
    strategy = open_.group.rows.strategy
    return tuple(int(np.atleast_1d(getattr(strategy, name))[open_.index]) for name in TELLING)


MOST_TRIED = 12
"""Structures whose best layout is looked for."""


def alternatives(problem: Problem, search: Standing, winner: Incumbent) -> tuple[Alternative, ...]:
    """At most `problem.alternatives` runners-up, best first: the most promising row of each other structure."""
    most_promising: dict[tuple[int, ...], Open] = {}
    for row in sorted(search.runners_up, key=lambda row: (row.lower, row.key)):
        most_promising.setdefault(_signature(row), row)
    most_promising.pop(tuple(int(getattr(winner.strategy, name)) for name in TELLING), None)
    out: list[Alternative] = []
    for row in list(most_promising.values())[:MOST_TRIED]:
        if len(out) >= problem.alternatives:
            break
        model, strategy = row.group.row(row.index), row.group.rows.strategy.row(row.index)
        layout = _layout(row)
        if layout is None:
            continue
        paid = cost(model, layout)
        if not (paid.fits and expressible(model, layout)):
            continue
        value = search.question.objective.value(strategy, paid)
        loss = float(value / winner.value - 1) if winner.value else 0.0
        out.append(
            Alternative(
                configuration=configuration(problem, strategy, layout, row.group.placement),
                value=float(value) * search.question.objective.scale,
                loss=loss,
                why=_why(winner, model, paid.time / model.virtual),
            )
        )
    return tuple(sorted(out, key=lambda a: a.value))


def _layout(row: Open) -> Layout | None:
    """The row's best known layout. The search stopped bounding it when it was beaten; its own best is fairer to it."""
    alone = row.group.batch([row.index])
    known = None if row.way is None else layout_of(alone, *row.way)
    reached = None if known is None else np.array([float(cost(alone.row(0), known).time)])
    way = row_bounds(alone, reached).way[0]
    return known if way is None else layout_of(alone, *way)


def _why(winner: Incumbent, row: Row, ticks: float) -> str:
    """The two steps side by side."""
    ours, theirs = seconds(winner.cost.time / winner.row.virtual), seconds(ticks)
    return f"its step takes {theirs:.4g} s, {theirs - ours:+.4g} s against the plan's {ours:.4g} s"
