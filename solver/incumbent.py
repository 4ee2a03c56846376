"""The best configuration so far, and what it rules out. Values are exact fractions."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from cost_models.placement import Placement
from cost_models.strategy import Strategy
from solver.layout import Cost, Layout, Row
from solver.objectives import Objective
from solver.rows import Key

MARGIN = 1e-12
"""Relative slack of float comparisons; what lies within it is compared exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incumbent:
    """A feasible configuration of the space."""

    value: Fraction
    simplicity: int
    key: Key
    strategy: Strategy
    row: Row
    layout: Layout
    cost: Cost
    placement: Placement = ()
    """Pool of each stage; empty where there is one pool."""

    @property
    def rank(self) -> tuple[Fraction, int, Key]:
        """What is minimised: value, then simplicity, then row key."""
        return self.value, self.simplicity, self.key


def beaten(lower: Any, incumbent: Incumbent | None) -> Any:
    """Whether floats are certainly above the incumbent's value: such rows cannot win, not even a tie."""
    if incumbent is None:
        return lower == float("inf")
    value = float(incumbent.value)
    return lower > value + MARGIN * abs(value)


def cutoff(
    objective: Objective, strategy: Strategy, simplicity: int, key: Key, incumbent: Incumbent | None
) -> int | None:
    """Largest goal with which a row still wins: equal to the incumbent only if it is simpler."""
    if incumbent is None or objective.goal == "feasible":
        return None
    limit = incumbent.value / objective.weight(strategy)
    wins_ties = (simplicity, key) < (incumbent.simplicity, incumbent.key)
    return int(limit // 1) if wins_ties else int(-(-limit // 1)) - 1
