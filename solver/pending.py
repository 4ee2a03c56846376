"""Rows that wait for their tight bound, least promising bound last."""

from collections.abc import Iterator, Sequence
from math import inf

import numpy as np

from cost_models.arrays import FloatArray, IntArray
from solver.bounds.free import counts_of
from solver.groups import Group
from solver.guess import guess
from solver.rounding import memory_down
from solver.standing import Question, Standing

BATCH_CELLS = 1_500_000
"""Numbers in one table of the tight bound."""


def promise(question: Question, group: Group) -> FloatArray:
    """What each row can do at best, in the objective's value; of a mere feasibility, how much room it leaves."""
    if question.goal == "memory":
        return memory_down(group.least)
    if question.goal == "feasible":
        return -group.room
    return group.rows.lower * question.objective.weights(group.rows.strategy)


def turn(question: Question, group: Group, lower: FloatArray) -> FloatArray:
    """In which order rows are looked at: by what their even layouts take, where time is asked for and memory is one."""
    if question.goal != "time" or len(group.memory) > 1:
        return lower
    ((_, table),) = group.memory.items()
    return guess(group.rows, table, counts_of(group.shape)) * question.objective.weights(group.rows.strategy)


class Pending:
    """Rows of many groups in one order."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.groups: list[Group] = []
        self.turn, self.lower = np.zeros(0), np.zeros(0)
        self.group, self.row = np.zeros(0, dtype=int), np.zeros(0, dtype=int)

    @property
    def least(self) -> float:
        """No row that waits can do better than this."""
        return float(self.lower.min(initial=inf))

    def add(self, groups: Sequence[Group]) -> None:
        """More rows, sorted in; ties keep the order of arrival."""
        first = len(self.groups)
        self.groups += groups
        promises = [promise(self.question, group) for group in groups]
        guesses = [turn(self.question, group, mine) for group, mine in zip(groups, promises, strict=True)]
        lower, turns = np.concatenate([self.lower, *promises]), np.concatenate([self.turn, *guesses])
        sizes = [len(group.rows) for group in groups]
        order = np.lexsort((lower, turns))
        self.lower, self.turn = lower[order], turns[order]
        self.group = np.concatenate([self.group, np.repeat(np.arange(first, first + len(groups)), sizes)])[order]
        self.row = np.concatenate([self.row, *(np.arange(size) for size in sizes)]).astype(int)[order]

    def take(self, standing: Standing, count: int | None = None) -> Iterator[tuple[Group, IntArray]]:
        """The `count` most promising rows (all, without a count), by group; what is beaten by then is dropped."""
        count = len(self.lower) if count is None else count
        lower, owner, row = self.lower[:count], self.group[:count], self.row[:count]
        self.turn, self.lower = self.turn[count:], self.lower[count:]
        self.group, self.row = self.group[count:], self.row[count:]
        for index in dict.fromkeys(owner.tolist()):
            group, mine = self.groups[index], owner == index
            yield from self._batches(standing, group, row[mine], lower[mine])

    def _batches(
        self, standing: Standing, group: Group, rows: IntArray, lower: FloatArray
    ) -> Iterator[tuple[Group, IntArray]]:
        rows, lower = self._left(standing, rows, lower)
        if not len(rows):
            return
        shape = group.shape
        cells = shape.stages * (1 if shape.fixed else shape.num_layers) * group.instants
        size = max(1, BATCH_CELLS // cells)
        for start in range(0, len(rows), size):
            part, _ = self._left(standing, rows[start : start + size], lower[start : start + size])
            if len(part):
                yield group, np.sort(part)

    def _left(self, standing: Standing, rows: IntArray, lower: FloatArray) -> tuple[IntArray, FloatArray]:
        """Rows that the incumbent does not beat by now, with their promises."""
        if self.question.goal == "feasible":
            return rows, lower
        left = ~np.asarray(standing.beaten(lower))
        return rows[left], lower[left]
