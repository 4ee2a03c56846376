"""The search for one objective: expand topologies, bound rows, close what is left with CP-SAT, least bound first.

Three passes, each over what the last could not rule out:
1. topologies by ascending floor, in chunks: price their rows, keep those whose first bound can still win;
2. those rows by ascending first bound, in batches: the tight bound, and the layout that reaches it;
3. rows whose bound is below the incumbent and not reached: CP-SAT with that bound below and the incumbent as cutoff.
When the least open bound is at the incumbent, it is optimal; when nothing is open and nothing was found, there is none.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from cost_models.arrays import FloatArray, IntArray
from solver.bounds.batch import Batch
from solver.bounds.first import least_host
from solver.bounds.offload import Level, refinable
from solver.bounds.peak import peak_bound
from solver.bounds.row import layout_of, row_bounds
from solver.bounds.topology import topology_floors
from solver.bounds.ways import Way
from solver.caps import Caps
from solver.dominance import Pruning, sequence_parallel_rows
from solver.incumbent import MARGIN, Incumbent, Key, beaten, cutoff
from solver.inner import solve_row
from solver.layout import Layout, cost, expressible
from solver.legality import legality
from solver.objectives import Objective
from solver.problem import Problem, Progress
from solver.rounding import MEMORY_UNIT, goal_limit, memory_down
from solver.rows import Group, Prices, Rows, grouped, priced_rows, with_memory
from solver.solution import Candidates
from solver.space import BackendSpace

FIRST_CHUNK, CHUNK, BATCH_CELLS, PROBE = 600, 4000, 1_500_000, 8
PROBED_GROUPS = 10
"""Of a chunk, once there is an incumbent."""


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


@dataclass(frozen=True, slots=True)
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
        rows = self.group.rows
        return rows.space, int(rows.topology[self.index]), int(rows.feature[self.index])


@dataclass(slots=True)
class Search:
    """One objective over given spaces under given caps."""

    problem: Problem
    spaces: Sequence[BackendSpace]
    prices: Prices
    objective: Objective
    caps: Caps
    counters: Counters
    pruning: Pruning = Pruning()
    progress: Progress | None = None
    last: bool = True
    """Whether this objective also settles ties, being the last of its list."""
    incumbent: Incumbent | None = None
    bound: Fraction | None = None
    """Least value that anything left open could have; None when nothing is open."""
    runners_up: list[Open] = field(default_factory=list)

    def run(self) -> Incumbent | None:
        """The optimum, or None when there is no feasible configuration (or none within the budget)."""
        pending: list[Group] = []
        for rows in self._expanded():
            groups = list(self._tested(rows))
            self._probe(groups)
            pending += groups
            if self._done():
                return self.incumbent
        still_open = self._bounded(pending)
        if not self._done():
            self._close(still_open)
        return self.incumbent

    def _beaten(self, lower: Any) -> Any:
        """Whether bounds are above the incumbent; where a later objective settles ties, at it suffices for memory."""
        above = beaten(lower, self.incumbent)
        if self.last or self.objective.goal != "memory" or self.incumbent is None:
            return above
        return above | (lower >= float(self.incumbent.value))

    def _done(self) -> bool:
        return self.objective.goal == "feasible" and self.incumbent is not None

    def _expanded(self) -> Iterator[Rows]:
        """Pass 1: rows of topologies whose floor can still win, priced in time."""
        floors, owner, topology = self._floors()
        order = np.argsort(floors, kind="stable")
        widths = [float(space.legal.sum() / max(space.size, 1)) for space in self.spaces]
        position, budget = 0, FIRST_CHUNK
        while position < len(order) and not self._beaten(floors[order[position]]):
            if self.counters.priced >= self.problem.budget.max_priced_rows:
                self._give_up(float(floors[order[position]]))
                return
            weights = np.cumsum([widths[owner[i]] for i in order[position : position + budget]])
            stop = position + max(1, int(np.searchsorted(weights, budget)))
            chunk = order[position:stop]
            chunk = chunk[~np.asarray(self._beaten(floors[chunk]))]
            for index, space in enumerate(self.spaces):
                at = np.sort(topology[chunk[owner[chunk] == index]])
                if len(at):
                    rows = priced_rows(self.problem, self.prices, index, space, *space.rows(at))
                    self.counters.priced += len(rows)
                    yield rows
            position, budget = stop, min(budget * 2, CHUNK)

    def _floors(self) -> tuple[FloatArray, IntArray, IntArray]:
        floors, owner, topology = [np.zeros(0)], [np.zeros(0, dtype=int)], [np.zeros(0, dtype=int)]
        for index, space in enumerate(self.spaces):
            if not space.size:
                continue
            legal = space.legal.any(axis=1)
            if self.pruning.topology_floor and self.objective.goal == "time":
                even = all(layout.layers == "even" for layout in legality(space.backend).layouts)
                ticks = topology_floors(self.problem, self.prices, space, even)
                strategy = space.strategy(np.arange(space.size), np.zeros(space.size, dtype=int))
                floor = ticks * self.objective.weights(strategy)
            else:
                floor = np.where(legal, 0.0, np.inf)
            floors.append(floor)
            owner.append(np.full(space.size, index))
            topology.append(np.arange(space.size))
        return np.concatenate(floors), np.concatenate(owner), np.concatenate(topology)

    def _tested(self, rows: Rows) -> Iterator[Group]:
        """Rows whose first bound can win and whose least memory fits, grouped by shape."""
        weights, limit = self.objective.weights(rows.strategy), self.caps.max_times(rows.strategy)
        keep = rows.lower <= limit
        if self.objective.goal == "time" and self.pruning.first_bound:
            keep &= ~np.asarray(self._beaten(rows.lower * weights))
        if not keep.any():
            return
        rows, limit = rows.take(keep), limit[keep]
        memory, least = with_memory(self.problem, self.prices, rows, self.caps)
        if self.pruning.necessary_memory:
            keep = least <= memory.capacity
            keep &= least_host(memory, rows.strategy, self.problem.job.pool.gpus_per_node) <= memory.host_capacity
            if self.objective.goal == "memory":
                keep &= ~np.asarray(self._beaten(least / MEMORY_UNIT))
            if not keep.any():
                return
            rows, memory, limit, least = rows.take(keep), memory.take(keep), limit[keep], least[keep]
        yield from grouped(self.problem, rows, memory, limit, least)

    def _first(self, group: Group) -> FloatArray:
        """First bound of each row, in the objective's value."""
        if self.objective.goal == "memory":
            return memory_down(group.least)
        if self.objective.goal == "feasible":
            return np.zeros(len(group.rows))
        return group.rows.lower * self.objective.weights(group.rows.strategy)

    def _probe(self, groups: list[Group]) -> None:
        """Bound a few of the best rows of a chunk at once: a good incumbent early saves most of the work."""
        if self.objective.goal == "feasible":
            groups = sorted(groups, key=lambda group: -float(group.room.max()))
        elif self.incumbent is not None:
            groups = sorted(groups, key=lambda group: float(self._first(group).min()))[:PROBED_GROUPS]
        for group in groups:
            lower = self._first(group)
            at = np.argsort(lower if self.objective.goal != "feasible" else -group.room, kind="stable")[:PROBE]
            at = at[~np.asarray(self._beaten(lower[at]))]
            if len(at):
                rows = self._bound(group, np.sort(at), probe=True)
                if rows and (group.batch.shape.kinds > 1 or self.objective.goal == "memory"):
                    # These bounds have no layout of their own: CP-SAT makes the first incumbents.
                    self._solve(min(rows, key=lambda row: (row.lower, row.key)))
            if self._done():
                return

    def _bounded(self, pending: list[Group]) -> list[Open]:
        """Pass 2: the tight bound of every row that can still win."""
        still_open: list[Open] = []
        for group in sorted(pending, key=lambda group: float(self._first(group).min(initial=np.inf))):
            lower, shape = self._first(group), group.batch.shape
            order = np.argsort(lower, kind="stable")
            cells = shape.stages * (1 if shape.fixed else shape.num_layers) * len(group.batch.memory.selector)
            size = max(1, BATCH_CELLS // cells)
            for start in range(0, len(order), size):
                at = order[start : start + size]
                at = at[~np.asarray(self._beaten(lower[at]))]
                if len(at):
                    still_open += self._bound(group, np.sort(at), probe=False)
                if self._done():
                    return []
        return still_open

    def _bound(self, group: Group, at: IntArray, *, probe: bool, fine: bool = False) -> list[Open]:
        if not (probe or fine):
            self.counters.bounded += len(at)
        batch, weights = group.batch.take(at), self.objective.weights(group.rows.strategy.take(at))
        limit = None
        if self.objective.goal == "time" and self.incumbent is not None:
            limit = goal_limit(float(self.incumbent.value) * (1 + MARGIN) / weights)
        if self.objective.goal == "memory":
            return self._bound_peak(group, at, batch)
        if self.incumbent is None and self.pruning.necessary_memory:
            fits = peak_bound(batch) <= batch.memory.capacity
            at, batch, weights = at[fits], batch.take(fits), weights[fits]
            if not len(at):
                return []
        bounds = row_bounds(batch, limit, fine=fine)
        if self.objective.goal == "feasible":
            lower, upper = np.where(np.isfinite(bounds.lower), 0.0, np.inf), bounds.upper
        else:
            lower, upper = bounds.lower, bounds.upper
        values = upper * weights
        exact = lower == upper
        for k in np.lexsort((at, group.simplicity[at], values)):
            if not np.isfinite(values[k]) or self._beaten(values[k]):
                break
            way = bounds.way[k]
            assert way is not None, "a finite upper bound has a layout"
            exact[k] &= self._offer(group, int(at[k]), layout_of(batch.take([k]), *way))
            if self._done():
                return []
        rows = [
            Open(
                float(lower[k] * weights[k]),
                int(bounds.lower[k]) if np.isfinite(bounds.lower[k]) else 0,
                group,
                int(at[k]),
                bounds.way[k],
            )
            for k in np.nonzero(np.isfinite(lower))[0]
        ]
        self.runners_up += [row for row in rows if row.way is not None and not probe]
        closed = {int(at[k]) for k in np.nonzero(exact)[0]}
        left = [row for row in rows if row.index not in closed and not self._beaten(row.lower)]
        if left and not fine and refinable(group.batch.shape):
            return self._bound(group, np.array([row.index for row in left]), probe=probe, fine=True)
        return left

    def _bound_peak(self, group: Group, at: IntArray, batch: Batch) -> list[Open]:
        lower = peak_bound(batch)
        lower = np.where(lower <= batch.memory.capacity, lower, np.inf)
        return [Open(float(lower[k]), 0, group, int(at[k]), None) for k in np.nonzero(~self._beaten(lower))[0]]

    def _offer(self, group: Group, index: int, layout: Layout) -> bool:
        """Make a layout the incumbent if it is feasible and better; says whether it is feasible."""
        row = group.batch.row(index)
        paid = cost(row, layout)
        if not (paid.fits and expressible(row, layout)):
            return False
        strategy = group.rows.strategy.row(index)
        found = Incumbent(
            value=self.objective.value(strategy, paid),
            simplicity=int(group.simplicity[index]),
            key=(group.rows.space, int(group.rows.topology[index]), int(group.rows.feature[index])),
            strategy=strategy,
            row=row,
            layout=layout,
            cost=paid,
        )
        if self.incumbent is None or found.rank < self.incumbent.rank:
            self.incumbent = found
            if self.progress is not None:
                self.progress(self.objective.name, float(found.value) * self.objective.scale)
        return True

    def _close(self, still_open: list[Open]) -> None:
        """Pass 3: CP-SAT on what is left, least bound first."""
        for row in sorted(still_open, key=lambda row: (row.lower, int(row.group.simplicity[row.index]), row.key)):
            if self._beaten(row.lower):
                return
            self._solve(row)
            if self._done():
                return

    def _solve(self, row: Open) -> None:
        group, index = row.group, row.index
        strategy, model = group.rows.strategy.row(index), group.batch.row(index)
        most = cutoff(self.objective, strategy, int(group.simplicity[index]), row.key, self.incumbent)
        hint = layout_of(group.batch.take([index]), *row.way) if row.way is not None else None
        if most is not None and (most < row.goal_lower if self.objective.goal == "time" else most < row.lower):
            return
        if self.counters.solved >= self.problem.budget.max_solves:
            self._give_up(row.lower)
            return
        self.counters.solved += 1
        answer = solve_row(
            model,
            self.objective.goal,
            least=row.goal_lower,
            most=most,
            hint=hint,
            deterministic_time=self.problem.budget.row_deterministic_time,
        )
        if answer.layout is not None:
            self._offer(group, index, answer.layout)
        if not answer.closed:
            self._give_up(max(row.lower, answer.bound * float(self.objective.weight(strategy))))

    def _give_up(self, lower: float) -> None:
        """Something stays open at this bound."""
        self.counters.exhausted = False
        value = Fraction(lower * (1 - MARGIN))
        self.bound = value if self.bound is None else min(self.bound, value)


def reduced(problem: Problem, spaces: Sequence[BackendSpace], pruning: Pruning) -> tuple[BackendSpace, ...]:
    """Spaces after the reductions that need no prices."""
    if not pruning.sequence_parallel:
        return tuple(spaces)
    return tuple(replace(s, legal=sequence_parallel_rows(problem, s, s.legal)) for s in spaces)
