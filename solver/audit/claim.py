"""The claim: what is said to be best, and the limits within which nothing else may then exist.

A list of objectives is claimed in order: nothing does better in the first; of what does as well in the first nothing
does better in the second; and of what does as well in all nothing has a smaller (simplicity, row key). Each is one
question: is there a configuration within these limits?
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from cost_models.arrays import FloatArray
from cost_models.strategy import Strategy
from solver.caps import Caps
from solver.objectives import Objective
from solver.simplicity import simplicity

_EVERY = 2.0**62


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The claimed optimum as a row of the space: its place in the order of ties."""

    backend: int
    row: int
    """Among the legal rows of its back end."""
    simplicity: int
    turn: int = 0
    """Place of its arrangement of pools among all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One set of limits. `below` must be undercut by rows that lose ties, met by rows that win them."""

    name: str
    within: tuple[tuple[Objective, Fraction], ...] = ()
    below: tuple[Objective, Fraction] | None = None
    ties: Best | None = None
    """Rows before this one in the order of ties may also equal `below`."""
    simpler_than: int | None = None
    """Only rows of less simplicity are asked about."""
    as_simple_as: int | None = None
    """Only rows of this simplicity are asked about."""
    turn: int = 0
    """Place of the arrangement of pools that is asked about."""

    def limits(self, strategy: Strategy, caps: Caps) -> tuple[FloatArray, FloatArray]:
        """Most v times the step and most peak of every row that would contradict; negative where none could."""
        n = len(strategy)
        time, peak = np.minimum(caps.max_times(strategy), _EVERY), np.full(n, _EVERY)
        before = self._before(strategy)
        asked = [(goal, value, np.ones(n, dtype=bool)) for goal, value in self.within]
        asked += [] if self.below is None else [(*self.below, before)]
        for goal, value, meets in asked:
            if goal.goal == "time":
                time = np.minimum(time, _most(goal, value, strategy, meets))
            elif goal.goal == "memory":
                peak = np.minimum(peak, np.where(meets, float(value // 1), float(-(-value // 1) - 1)))
            else:
                ranks, most = np.asarray(strategy.world_size, dtype=float), float(value)
                time = np.where(np.where(meets, ranks <= most, ranks < most), time, -1.0)
        score = simplicity(strategy)
        if self.simpler_than is not None:
            time = np.where(score < self.simpler_than, time, -1.0)
        if self.as_simple_as is not None:
            time = np.where(score == self.as_simple_as, time, -1.0)
        return time, peak

    def _before(self, strategy: Strategy) -> FloatArray:
        n = len(strategy)
        if self.ties is None:
            return np.zeros(n, dtype=bool)
        score, best = simplicity(strategy), self.ties
        backend = np.asarray(strategy.backend)
        earlier = (backend < best.backend) | ((backend == best.backend) & (np.arange(n) < best.row))
        earlier = earlier if self.turn == best.turn else np.full(n, self.turn < best.turn)
        result: FloatArray = (score < best.simplicity) | ((score == best.simplicity) & earlier)
        return result


def _most(goal: Objective, value: Fraction, strategy: Strategy, meets: FloatArray) -> FloatArray:
    """Most v times the step with which a row reaches a value, or undercuts it. (n,) [ticks]"""
    rows = zip(
        np.asarray(strategy.world_size).tolist(),
        np.asarray(strategy.virtual_pipeline_stages).tolist(),
        np.asarray(strategy.global_batch_size).tolist(),
        np.asarray(meets).tolist(),
        strict=True,
    )
    known: dict[tuple[int, int, int, bool], float] = {}
    out = []
    for i, key in enumerate(rows):
        if key not in known:
            limit = value / goal.weight(strategy.row(i))
            known[key] = float(limit // 1 if key[3] else -(-limit // 1) - 1)
        out.append(known[key])
    return np.array(out, dtype=float)


def questions(
    chain: tuple[Objective, ...],
    values: tuple[Fraction, ...],
    best: Best | None,
    bounds: tuple[Fraction, ...] | None = None,
    tolerance: float = 0.0,
) -> Iterator[Question]:
    """What must have no answer for the values of a chain of objectives to be best.

    With `bounds` the values are not claimed to be best, but no worse than those; with a `tolerance` the bounds are the
    best values, and nothing simpler is within the tolerance of all of them.
    """
    if best is None:
        yield Question(name="feasible")
        return
    reached = bounds if bounds is not None and tolerance else values
    for k, goal in enumerate(chain):
        last = k == len(chain) - 1 and bounds is None
        yield Question(
            name=f"better {goal.name}",
            within=tuple(zip(chain[:k], reached[:k], strict=True)),
            below=(goal, (bounds or values)[k]),
            ties=best if last else None,
        )
    if bounds is None or not tolerance:
        return
    within = tuple((goal, bound * (1 + Fraction(tolerance))) for goal, bound in zip(chain, bounds, strict=True))
    yield Question(name="simpler", within=within, simpler_than=best.simplicity)
    yield Question(
        name=f"as simple and better {chain[-1].name}",
        within=within,
        below=(chain[-1], values[-1]),
        ties=best,
        as_simple_as=best.simplicity,
    )
