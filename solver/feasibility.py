"""Feasibility: is there any configuration at all? The question that conflicts and relaxations ask many times."""

from dataclasses import dataclass, replace

from cost_models.errors import SpecError
from cost_models.specs.configuration import Configuration
from solver.best_first import search
from solver.caps import Caps, caps
from solver.ceilings import below_ceilings
from solver.dominance import Pruning, reduced
from solver.micro_batches import least_first, others
from solver.objectives import Objective
from solver.part import with_parts
from solver.problem import Problem
from solver.rows import no_time, prices
from solver.space import spaces
from solver.standing import Counters, Question, Standing
from solver.verify import configuration, verify, verify_memory

ANY = Objective(name="gpus", goal="feasible", unit="gpus", scale=1.0)
"""Every feasible configuration is as good as another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feasibility:
    """Whether a problem has a configuration, and one if so."""

    configuration: Configuration | None
    legal: int
    """Rows that the rules left of what was not refuted before."""
    proven: bool
    """False when the budget ran out without one."""

    def __bool__(self) -> bool:
        """Whether there is one."""
        return self.configuration is not None


def feasible(problem: Problem, limit: Caps | None = None, pruning: Pruning = Pruning()) -> Feasibility:
    """Any configuration of a problem, or the proof that there is none; verified against the scalar ledger.

    The numbers of devices are those that `solve` looks at.
    Time is priced only where it is limited. `limit` replaces the caps of the problem, for questions that set a
    resource aside (then nothing is verified).
    """
    if len(problem.job.cluster.pools) > 1 and problem.arrangement is None:
        return _over_pools(problem, limit)
    problem = with_parts(problem)
    price, held = prices(None), limit or caps(problem)
    if problem.refuted is not None:
        left = problem.refuted.open(problem, held)
        if left is None:
            return Feasibility(configuration=None, legal=0, proven=True)
        problem = left
    at = reduced(problem, spaces(problem), pruning)
    price = price if held.on_time else replace(price, time=no_time)
    legal = sum(int(space.legal.sum()) for space in at)
    at = below_ceilings(problem, price, at, held) if pruning.ceilings else at
    split = pruning.micro_batches and not held.on_time and problem.arrangement is None
    least = least_first(problem, at) if split else at
    question = Question(problem=problem, spaces=least, prices=price, objective=ANY, caps=held, pruning=pruning)
    standing = Standing(question=question, counters=Counters())
    found = search(question, standing)
    if found is None and split:
        question = replace(question, spaces=others(problem, price, at, least, held))
        standing = Standing(question=question, counters=standing.counters)
        found = search(question, standing)
    if found is None:
        if problem.refuted is not None and standing.counters.exhausted:
            problem.refuted.add(problem, held)
        return Feasibility(configuration=None, legal=legal, proven=standing.counters.exhausted)
    chosen = configuration(problem, found.strategy, found.layout, found.placement)
    if limit is None and held.on_time:
        verify(problem, found)
    elif limit is None:
        verify_memory(problem, chosen)
    return Feasibility(configuration=chosen, legal=legal, proven=True)


def _over_pools(problem: Problem, limit: Caps | None) -> Feasibility:
    from solver.pools import feasible_over_pools  # noqa: PLC0415  it runs searches over every arrangement

    part, found, counters, legal = feasible_over_pools(problem, limit)
    if found is None:
        return Feasibility(configuration=None, legal=legal, proven=counters.exhausted)
    if limit is None and caps(part).on_time:
        verify(part, found)
    chosen = configuration(part, found.strategy, found.layout, found.placement)
    if limit is None:
        verify_memory(part, chosen)
    return Feasibility(configuration=chosen, legal=legal, proven=True)


def feasible_or_none(problem: Problem) -> Feasibility:
    """Like `feasible`; a change that contradicts the job itself (a batch that cannot be split) counts as infeasible."""
    try:
        return feasible(problem)
    except SpecError:
        return Feasibility(configuration=None, legal=0, proven=True)
