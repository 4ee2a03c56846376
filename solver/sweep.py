"""A sweep: the fastest configuration under one memory limit after another, best from loose to tight, on shared tables.

Rows are priced once. A tighter limit never makes a row faster, so the bound of a row under one limit stands under every
tighter one: only rows whose bound is not above the new optimum are bounded again, with the new capacity; a row that no
longer fits is not looked at again. Topologies that could not win under a loose limit are expanded when a tight one
needs them.
"""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np

from cost_models.arrays import FloatArray, IntArray
from solver.best_first import PROBE
from solver.closing import close, solve
from solver.expansion import Expansion
from solver.groups import Group
from solver.incumbent import Incumbent
from solver.objectives import Objective
from solver.rounding import MEMORY_UNIT
from solver.standing import Counters, Open, Question, Standing
from solver.tightening import tightened

AHEAD = Fraction(4, 3)
"""Topologies are expanded up to this multiple of the optimum, once any are."""
UNLIMITED = 2**53
"""KiB that no limit reaches."""
CHUNK = 16_000
"""Rows priced at once."""


class Sweep:
    """The rows of a question, with the best bound known of each."""

    def __init__(self, question: Question, counters: Counters) -> None:
        # A row that is beaten under a loose limit may win under a tight one.
        self.question = replace(question, pruning=replace(question.pruning, first_bound=False))
        self.counters = counters
        self.expansion = Expansion(self.question, most=CHUNK)
        self.groups: list[Group] = []
        self.first_bound: FloatArray = np.zeros(0)
        self.lower: FloatArray = np.zeros(0)
        """Bounds under the limit that is looked at."""
        self.known: dict[int, FloatArray] = {}
        """Bounds under earlier limits; those of rows that came later are missing at the end."""
        self.group: IntArray = np.zeros(0, dtype=np.int64)
        self.row: IntArray = np.zeros(0, dtype=np.int64)
        self.least: FloatArray = np.zeros(0)
        """Least peak of each row. [bytes]"""
        self.first: list[int] = []
        """Place of each group's first row."""

    def fastest(self, most: int | None, start: Incumbent | None) -> Standing:
        """The optimum with at most so many KiB allocated (no limit where None); `start` is feasible there."""
        limits = _Limits(most)
        self.lower = self._known(UNLIMITED if most is None else most)
        standing = Standing(question=self.question, counters=self.counters, incumbent=start)
        standing.learn = lambda group, rows, lower: self._raise(limits.index(group), rows, lower)
        if most is not None:
            self.lower = np.where(self.least > most * MEMORY_UNIT, np.inf, self.lower)
        done, still_open, count = np.zeros(len(self.lower), dtype=bool), list[Open](), PROBE
        while True:
            for at in self._promising(standing, done, count):
                done[at] = True
                group = limits.group(int(self.group[at[0]]), self.groups)
                still_open += tightened(self.question, standing, group, self.row[at])
            if standing.incumbent is None and still_open:
                best = min(still_open, key=lambda row: row.rank)
                still_open.remove(best)
                solve(self.question, standing, best)
            improved = standing.incumbent is not start
            expanded = (improved or done.all()) and self._expand(standing)
            done = np.pad(done, (0, len(self.lower) - len(done)))
            if not expanded and done[~np.asarray(standing.beaten(self.lower))].all():
                break
            count = len(done) if improved else 2 * count
        close(self.question, standing, still_open)
        self.known[UNLIMITED if most is None else most] = self.lower
        return standing

    def _known(self, most: int) -> FloatArray:
        """The best bounds that hold under a limit: those of the tightest earlier one that is no tighter."""
        looser = [limit for limit in self.known if limit >= most]
        lower = self.known[min(looser)] if looser else self.first_bound
        return np.concatenate([lower, self.first_bound[len(lower) :]])

    def _expand(self, standing: Standing) -> bool:
        """All topologies that can still win, and those that a tighter limit will ask for soon: in few, large groups.

        Whether there were any; their rows may all be beyond what devices hold.
        """
        first = self.expansion.chunk(standing)
        if first is None:
            return False
        self._add(first)
        found = standing.incumbent
        ahead = replace(standing, incumbent=found and replace(found, value=found.value * AHEAD))
        while (groups := self.expansion.chunk(ahead)) is not None:
            self._add(groups)
            if standing.incumbent is None:
                break
        return True

    def leanest(self, found: Standing, time: Objective, memory: Objective, most: int | None) -> Standing:
        """The least memory of what is as fast as the incumbent of `found`, under the same limit."""
        assert found.incumbent is not None
        caps = self.question.caps.after(time, found.incumbent.value)
        question = replace(self.question, objective=memory, caps=caps)
        start = replace(found.incumbent, value=Fraction(found.incumbent.cost.memory))
        standing, limits = Standing(question=question, counters=self.counters, incumbent=start), _Limits(most)
        still_open = list[Open]()
        for at in self._promising(found, np.zeros(len(self.lower), dtype=bool), len(self.lower)):
            group = limits.group(int(self.group[at[0]]), self.groups)
            part = group.take(self.row[at])
            part = replace(part, max_time=caps.max_times(part.rows.strategy))
            still_open += tightened(question, standing, part, np.arange(len(at)))
        close(question, standing, still_open)
        return standing

    def _promising(self, standing: Standing, done: np.ndarray, count: int) -> Iterator[IntArray]:
        """Places of the `count` most promising rows that can win, group by group."""
        places = np.nonzero(~done & ~np.asarray(standing.beaten(self.lower)))[0]
        places = places[np.argsort(self.lower[places], kind="stable")[:count]]
        for index in dict.fromkeys(self.group[places].tolist()):
            mine = np.sort(places[self.group[places] == index])
            mine = mine[~np.asarray(standing.beaten(self.lower[mine]))]
            if len(mine):
                yield mine

    def _add(self, groups: list[Group]) -> None:
        sizes, start = [len(group.rows) for group in groups], len(self.lower)
        self.first += [start + int(n) for n in np.cumsum([0, *sizes[:-1]])[: len(groups)]]
        lower = [group.rows.lower * self.question.objective.weights(group.rows.strategy) for group in groups]
        self.first_bound = np.concatenate([self.first_bound, *lower])
        self.lower = np.concatenate([self.lower, *lower])
        self.group = np.concatenate([self.group, np.repeat(np.arange(len(groups)) + len(self.groups), sizes)])
        self.row = np.concatenate([self.row, *(np.arange(size) for size in sizes)])
        self.least = np.concatenate([self.least, *(group.least for group in groups)])
        self.groups += groups

    def _raise(self, group: int, rows: IntArray, lower: FloatArray) -> None:
        at = self.first[group] + rows
        self.lower[at] = np.maximum(self.lower[at], lower)


class _Limits:
    """Groups under one memory limit."""

    def __init__(self, most: int | None) -> None:
        self.most = most
        self.made: dict[int, Group] = {}
        self.places: dict[int, int] = {}

    def group(self, index: int, groups: list[Group]) -> Group:
        """A group with its capacity under the limit."""
        if index not in self.made:
            group = groups[index]
            if self.most is not None:
                group = group.within(self.most)
            self.made[index] = group
            self.places[id(group)] = index
        return self.made[index]

    def index(self, group: Group) -> int:
        """Place of a group under the limit among all groups."""
        return self.places[id(group)]
