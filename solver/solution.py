"""A solution: what was chosen, what is proven about it, and what was beaten."""

from dataclasses import dataclass
from typing import Literal

from cost_models.specs.configuration import Configuration

Status = Literal["optimal", "feasible", "infeasible"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveValue:
    """One objective of the list, as achieved and as bounded."""

    name: str
    unit: str
    value: float
    bound: float
    """No configuration of the space does better than this (given the objectives before it)."""

    @property
    def gap(self) -> float:
        """Relative distance to the bound; 0 when proven."""
        return 0.0 if self.value == self.bound else (self.value - self.bound) / abs(self.value)

    @property
    def proven(self) -> bool:
        """Whether value and bound meet."""
        return self.value == self.bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """How the space shrank. Rows are configurations without their stage layout."""

    raw: int = 0
    """Topologies times features, before any rule."""
    legal: int = 0
    priced: int = 0
    """Rows whose coefficients were computed; the rest were beaten by a bound on their topology."""
    bounded: int = 0
    """Rows that needed the tight bound."""
    solved: int = 0
    """Rows that needed CP-SAT."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """One legality rule and how many raw candidates break it."""

    backend: str
    rule: str
    reason: str
    source: str
    candidates: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """A runner-up: a feasible configuration that lost, and why."""

    configuration: Configuration
    value: float
    """Of the first objective, in its unit."""
    loss: float
    """Relative to the winner's."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """The answer. Equal problems on equal versions give equal solutions, byte for byte."""

    status: Status
    configuration: Configuration | None
    objectives: tuple[ObjectiveValue, ...]
    candidates: Candidates
    dropped: tuple[Dropped, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    ortools: str = ""
    parameters: str = ""
    """Of CP-SAT, as text."""
    rounding_seconds: float = 0.0
    """Most that integer rounding can have added to the step time of the winner."""
    gpus_considered: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    """What the budget left undone, for people."""

    @property
    def value(self) -> float:
        """Of the first objective."""
        return self.objectives[0].value

    @property
    def bound(self) -> float:
        """Of the first objective."""
        return self.objectives[0].bound

    @property
    def gap(self) -> float:
        """Of the first objective."""
        return self.objectives[0].gap
