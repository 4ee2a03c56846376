"""Where a search stands: the best configuration so far, what that rules out, and what had to be left open."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import isfinite
from typing import Any

from cost_models.arrays import FloatArray, IntArray
from cost_models.strategy import Strategy
from solver.bounds.offload import Level
from solver.bounds.ways import Way
from solver.caps import Caps
from solver.dominance import Pruning
from solver.groups import Group
from solver.incumbent import MARGIN, Incumbent, beaten, cutoff
from solver.layout import Layout, Row, cost, expressible
from solver.objectives import Objective
from solver.problem import Problem, Progress
from solver.rounding import goal_limit
from solver.rows import Key, Prices
from solver.solution import Candidates
from solver.space import BackendSpace


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What one search is asked: one objective over given spaces under given caps."""

    problem: Problem
    spaces: Sequence[BackendSpace]
    prices: Prices
    objective: Objective
    caps: Caps
    pruning: Pruning = Pruning()
    last: bool = True
    """Whether this objective also settles ties, being the last of its list."""

    @property
    def goal(self) -> str:
        """What the inner model of a row minimises."""
        return self.objective.goal


@dataclass(slots=True)
class Counters:
    """What a search did."""

    priced: int = 0
    bounded: int = 0
    solved: int = 0
    exhausted: bool = True
    """False when a limit stopped it."""

    def candidates(self, spaces: Sequence[BackendSpace]) -> Candidates:
        """With the sizes of the spaces."""
        return Candidates(
            raw=sum(space.raw for space in spaces),
            legal=sum(int(space.legal.sum()) for space in spaces),
            priced=self.priced,
            bounded=self.bounded,
            solved=self.solved,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Open:
    """A bounded row that may still win."""

    lower: float
    """In the objective's value."""
    goal_lower: int
    """In the row's goal."""
    group: Group
    index: int
    way: tuple[Way, Level] | None

    @property
    def key(self) -> Key:
        """Row key."""
        return self.group.rows.key(self.index)

    @property
    def rank(self) -> tuple[float, int, Key]:
        """The order in which rows are closed."""
        return self.lower, int(self.group.simplicity[self.index]), self.key


@dataclass(slots=True, kw_only=True)
class Standing:
    """The state of a search. Rows are ruled out by `beaten` alone."""

    question: Question
    counters: Counters
    progress: Progress | None = None
    incumbent: Incumbent | None = None
    bound: Fraction | None = None
    """Least value that anything left open could have; None when nothing is open."""
    told: float = 0.0
    """The bound that was told last."""
    runners_up: list[Open] = field(default_factory=list)
    """Bounded rows with a layout, and rows that a test ruled out by little."""
    learn: Callable[[Group, IntArray, FloatArray], None] = lambda group, rows, lower: None
    """Told of every tight bound, in the objective's value; for searches that follow on the same rows."""

    def beaten(self, lower: Any) -> Any:
        """Whether bounds are above the incumbent; where a later objective settles ties, at it suffices for memory."""
        above = beaten(lower, self.incumbent)
        if self.question.last or self.question.goal != "memory" or self.incumbent is None:
            return above
        return above | (lower >= float(self.incumbent.value))

    @property
    def found(self) -> bool:
        """Whether there is an incumbent."""
        return self.incumbent is not None

    @property
    def answered(self) -> bool:
        """Whether any configuration will do and there is one."""
        return self.question.goal == "feasible" and self.incumbent is not None

    def goal_limits(self, weights: FloatArray) -> FloatArray | None:
        """Goal beyond which a row of these weights cannot win; None while anything can. (n,)"""
        if self.question.goal != "time" or self.incumbent is None:
            return None
        return goal_limit(float(self.incumbent.value) * (1 + MARGIN) / weights)

    def cutoff(self, strategy: Strategy, row: Open) -> int | None:
        """Largest goal with which a row still wins."""
        simplicity = int(row.group.simplicity[row.index])
        return cutoff(self.question.objective, strategy, simplicity, row.key, self.incumbent)

    def offer(self, group: Group, index: int, row: Row, layout: Layout) -> bool:
        """Make a layout of a row the incumbent if it is feasible and better; says whether it is feasible."""
        objective = self.question.objective
        paid = cost(row, layout)
        if not (paid.fits and expressible(row, layout)):
            return False
        strategy = group.rows.strategy.row(index)
        found = Incumbent(
            value=objective.value(strategy, paid),
            simplicity=int(group.simplicity[index]),
            key=group.rows.key(index),
            strategy=strategy,
            row=row,
            layout=layout,
            cost=paid,
            placement=group.placement,
        )
        if self.incumbent is None or found.rank < self.incumbent.rank:
            self.incumbent = found
            if self.progress is not None:
                self.progress(objective.name, float(found.value) * objective.scale)
        return True

    def proven(self, lower: float) -> None:
        """Nothing that this search has not ruled out yet is below a value: told where it is more than was told."""
        if self.progress is None or self.question.goal == "feasible":
            return
        bound = lower if self.incumbent is None else min(lower, float(self.incumbent.value))
        if self.bound is not None:
            bound = min(bound, float(self.bound))
        if isfinite(bound) and bound > self.told:
            self.told = bound
            self.progress(f"{self.question.objective.name} bound", bound * self.question.objective.scale)

    def give_up(self, lower: float) -> None:
        """Something stays open at this bound."""
        self.counters.exhausted = False
        value = Fraction(lower * (1 - MARGIN))
        self.bound = value if self.bound is None else min(self.bound, value)
