"""Feasibility: is there any configuration at all? The question that conflicts and relaxations ask many times."""

from dataclasses import dataclass

from cost_models.errors import SpecError
from cost_models.specs.configuration import Configuration
from solver.best_first import search
from solver.caps import Caps, caps
from solver.dominance import Pruning, reduced
from solver.objectives import Objective, timed_limits
from solver.problem import Problem
from solver.rows import prices
from solver.space import spaces
from solver.standing import Counters, Question, Standing
from solver.verify import configuration, verify

ANY = Objective(name="gpus", goal="feasible", unit="gpus", scale=1.0)
"""Every feasible configuration is as good as another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feasibility:
    """Whether a problem has a configuration, and one if so."""

    configuration: Configuration | None
    legal: int
    """Rows that the rules left."""
    proven: bool
    """False when the budget ran out without one."""

    def __bool__(self) -> bool:
        """Whether there is one."""
        return self.configuration is not None


def feasible(problem: Problem, limit: Caps | None = None) -> Feasibility:
    """Any configuration of a problem, or the proof that there is none; verified against the scalar ledger.

    `limit` replaces the caps of the problem, for questions that set a resource aside (then nothing is verified).
    """
    timed = limit is not None or problem.limits.max_step_seconds is not None or bool(timed_limits(problem))
    at = reduced(problem, spaces(problem), Pruning(), timed=timed)
    question = Question(problem=problem, spaces=at, prices=prices(None), objective=ANY, caps=limit or caps(problem))
    standing = Standing(question=question, counters=Counters())
    found = search(question, standing)
    legal = sum(int(space.legal.sum()) for space in at)
    if found is None:
        return Feasibility(configuration=None, legal=legal, proven=standing.counters.exhausted)
    if limit is None:
        verify(problem, found)
    return Feasibility(
        configuration=configuration(problem, found.strategy, found.layout, found.placement), legal=legal, proven=True
    )


def feasible_or_none(problem: Problem) -> Feasibility:
    """Like `feasible`; a change that contradicts the job itself (a batch that cannot be split) counts as infeasible."""
    try:
        return feasible(problem)
    except SpecError:
        return Feasibility(configuration=None, legal=0, proven=True)
