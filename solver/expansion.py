"""Pass 1: topologies by ascending floor, in chunks. Rows are priced in time, then, where that can win, in memory."""

from collections.abc import Callable, Iterator
from math import inf

import numpy as np

from cost_models.arrays import FloatArray, IntArray
from cost_models.strategy import Strategy
from solver.bounds.topology import topology_floors
from solver.groups import Group, grouped
from solver.incumbent import MARGIN
from solver.rounding import MEMORY_UNIT
from solver.rows import Rows, may_fit, may_keep_share, priced_rows, with_communication, with_memory
from solver.space import every_topology, rows_of
from solver.standing import Question, Standing
from solver.twins import outdone, twin_features

FIRST_CHUNK, CHUNK, GROWTH = 600, 6_000, 4
"""Rows priced at once: few until there is an incumbent to prune with, then so many that calls do not count."""


class Expansion:
    """Topologies by ascending floor, expanded as far as they can still win; more of them when the standing worsens."""

    def __init__(self, question: Question, *, most: int | None = None) -> None:
        """`most`: rows priced at once, at last."""
        self.question = question
        floors, owner, topology = _floors(question)
        order = np.argsort(floors, kind="stable")
        self.floors, self.owner, self.topology = floors[order], owner[order], topology[order]
        self.place = order
        self.position, self.size, self.most = 0, FIRST_CHUNK, most or CHUNK
        self.widths = np.array([space.legal.sum() / max(space.size, 1) for space in question.spaces])
        self.twins = [twin_features(space) for space in question.spaces]

    @property
    def least(self) -> float:
        """No topology that is left has a floor below this."""
        return float(self.floors[self.position]) if self.position < len(self.floors) else inf

    def chunks(self, standing: Standing) -> Iterator[list[Group]]:
        """Rows that can still win and may fit, chunk by chunk."""
        while (groups := self.chunk(standing)) is not None:
            yield groups

    def chunk(self, standing: Standing) -> list[Group] | None:
        """The next chunk; None when no topology that is left can win, or the budget ran out."""
        question, start = self.question, self.position
        if start >= len(self.floors) or standing.beaten(self.floors[start]):
            return None
        if standing.counters.priced >= question.problem.budget.max_priced_rows:
            standing.give_up(float(self.floors[start]))
            return None
        amounts = np.cumsum(self.widths[self.owner[start : start + self.size]])
        stop = start + max(1, int(np.searchsorted(amounts, self.size)))
        stop -= int(np.count_nonzero(standing.beaten(self.floors[start:stop])))
        chunk = start + np.argsort(self.place[start:stop], kind="stable")
        rows = priced_rows(
            question.problem,
            question.prices,
            question.spaces,
            *rows_of(question.spaces, self.owner[chunk], self.topology[chunk]),
        )
        standing.counters.priced += len(rows)
        self.position, self.size = stop, min(self.size * GROWTH, self.most)
        return list(_tested(question, standing, rows, self.twins))


def _floors(question: Question) -> tuple[FloatArray, IntArray, IntArray]:
    """Floor, space and index of every topology; floors of few rows cost more than the rows."""
    owner, topology = every_topology(question.spaces)
    few = sum(int(space.legal.sum()) for space in question.spaces) <= FIRST_CHUNK
    timed = question.goal == "time" or (question.goal == "feasible" and question.caps.on_time)
    if not timed or not question.pruning.topology_floor or few:
        legal = [space.legal.any(axis=1) for space in question.spaces]
        return np.where(np.concatenate([*legal, np.zeros(0, dtype=bool)]), 0.0, np.inf), owner, topology
    weights = question.objective.weights
    if question.goal == "feasible":
        floors = topology_floors(question.problem, question.prices, question.spaces, _share_of_limit(question))
        return np.where(floors <= 1 + MARGIN, 0.0, np.inf), owner, topology
    most = question.caps.max_times if question.caps.on_time else None
    return topology_floors(question.problem, question.prices, question.spaces, weights, most), owner, topology


def _share_of_limit(question: Question) -> Callable[[Strategy], FloatArray]:
    """What a tick of v times the step takes of what the limits allow a row."""
    return lambda strategy: 1 / np.maximum(question.caps.max_times(strategy), 1)


def _tested(question: Question, standing: Standing, rows: Rows, twins: list[IntArray]) -> Iterator[Group]:
    """Rows whose first bound can win, whose least memory fits and whose twin is no better, grouped by shape."""
    limit = question.caps.max_times(rows.strategy)
    keep = rows.lower <= limit
    if question.goal == "time" and question.pruning.first_bound:
        keep &= ~np.asarray(standing.beaten(rows.lower * question.objective.weights(rows.strategy)))
    if not keep.any():
        return
    rows, limit = with_communication(question.problem, rows.take(keep)), limit[keep]
    if question.pruning.communication:
        keep = may_keep_share(question.problem, rows)
        if not keep.any():
            return
        rows, limit = rows.take(keep), limit[keep]
    memory, least = with_memory(question.problem, question.prices, rows, question.caps)
    if question.pruning.necessary_memory:
        keep = may_fit(question.problem, rows, memory, least)
        if question.goal == "memory":
            keep &= ~np.asarray(standing.beaten(least / MEMORY_UNIT))
        if not keep.any():
            return
        rows, limit, least = rows.take(keep), limit[keep], least[keep]
        memory = {pool: table.take(keep) for pool, table in memory.items()}
    if question.goal == "time" and question.pruning.sequence_parallel and not question.caps.shared:
        keep = ~outdone(question.problem, rows, memory, twins)
        rows, limit, least = rows.take(keep), limit[keep], least[keep]
        memory = {pool: table.take(keep) for pool, table in memory.items()}
    yield from grouped(question.problem, rows, memory, limit, least)
