"""Pass 3: CP-SAT on the rows that bounds leave open, least bound first."""

from collections.abc import Iterable

from solver.bounds.row import layout_of
from solver.inner import solve_row
from solver.standing import Open, Question, Standing


def close(question: Question, standing: Standing, rows: Iterable[Open]) -> None:
    """Solve rows until the least bound is beaten, or any configuration will do and one was found."""
    for row in sorted(rows, key=lambda row: row.rank):
        if standing.beaten(row.lower) or standing.answered:
            return
        standing.proven(row.lower)
        solve(question, standing, row)


def solve(question: Question, standing: Standing, row: Open) -> None:
    """The best layout of a row within the cutoff becomes the incumbent; a row that runs out of budget stays open."""
    group, index, budget = row.group, row.index, question.problem.budget
    strategy = group.rows.strategy.row(index)
    most = standing.cutoff(strategy, row)
    if most is not None and most < (row.goal_lower if question.goal == "time" else row.lower):
        return
    if standing.counters.solved >= budget.max_solves:
        standing.give_up(row.lower)
        return
    standing.counters.solved += 1
    batch = group.batch([index])
    model = group.limited(batch.row(0), index)
    answer = solve_row(
        model,
        question.objective.goal,
        least=row.goal_lower,
        most=most,
        hint=layout_of(batch, *row.way) if row.way is not None else None,
        deterministic_time=budget.row_deterministic_time,
    )
    if answer.layout is not None:
        standing.offer(group, index, model, answer.layout)
    if not answer.closed:
        standing.give_up(max(row.lower, answer.bound * float(question.objective.weight(strategy))))
