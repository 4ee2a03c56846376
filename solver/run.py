"""A run: the searches of one question after the other, which share their prices and count together."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from solver.best_first import search
from solver.caps import Caps, caps
from solver.ceilings import below_ceilings
from solver.dominance import Pruning, reduced
from solver.incumbent import Incumbent
from solver.objectives import Objective
from solver.problem import Problem, Progress
from solver.rows import Prices
from solver.space import BackendSpace, spaces
from solver.standing import Counters, Question, Standing


@dataclass(slots=True)
class Run:
    """The searches of one question, which share their prices and count together."""

    problem: Problem
    prices: Prices
    pruning: Pruning
    progress: Progress | None
    counters: Counters = field(default_factory=Counters)
    raw: int = 0
    legal: int = 0

    def rows(self, problem: Problem, pruning: Pruning | None = None) -> tuple[BackendSpace, ...]:
        """The rows of a problem that no reduction drops, counted before any is priced."""
        pruning = pruning or self.pruning
        legal = reduced(problem, spaces(problem), pruning)
        counted = self.counters.candidates(legal)
        self.raw += counted.raw
        self.legal += counted.legal
        return below_ceilings(problem, self.prices, legal, caps(problem)) if pruning.ceilings else legal

    def search(
        self,
        goal: Objective,
        limit: Caps,
        at: Sequence[BackendSpace],
        start: Incumbent | None = None,
        last: bool = True,
    ) -> Standing:
        """One search, run."""
        question = Question(
            problem=self.problem,
            spaces=at,
            prices=self.prices,
            objective=goal,
            caps=limit,
            pruning=self.pruning,
            last=last,
        )
        standing = Standing(question=question, counters=self.counters, progress=self.progress, incumbent=start)
        search(question, standing)
        return standing


@dataclass(frozen=True, slots=True)
class Achieved:
    """An objective's value and what bounds it."""

    goal: Objective
    exact: Fraction
    bound: Fraction | None


def restated(goal: Objective, found: Incumbent) -> Incumbent:
    """The incumbent valued by the next objective."""
    return replace(found, value=goal.value(found.strategy, found.cost))
