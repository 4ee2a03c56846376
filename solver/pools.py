"""Several pools: every arrangement of them is a search of its own, best floor first, with the incumbent carried over.

An arrangement says how many devices each pool gives and in which order the pools follow along the pipeline; leaving
devices idle is an arrangement as any other. Once the floor of the next one is above the incumbent, nothing that is left
can win.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from typing import Any

import numpy as np

from cost_models.calibration import Calibration
from cost_models.job import Job
from cost_models.specs.choices import ObjectiveName
from cost_models.strategy import Strategy
from cost_models.table import MemoryTable, TimeTable
from solver import verify as _verify
from solver.arrangement import PARTS, Arrangement, Use, arrangements, part_of_pools
from solver.bounds.pools import arrangement_floor, device_bytes, device_ticks
from solver.caps import Caps, caps
from solver.dominance import Pruning
from solver.errors import LimitReached
from solver.feasibility import ANY
from solver.incumbent import Incumbent, beaten
from solver.objectives import Objective, objective, objectives
from solver.problem import Pricing, Problem, Progress
from solver.rows import Prices, no_time, prices
from solver.run import Achieved, Run, restated
from solver.search import infeasible, solution_of, unproven
from solver.solution import Candidates, Solution
from solver.space import BackendSpace
from solver.standing import Counters, Open, Standing
from solver.ties import plainest_layout, simplest, within


class _Remembered:
    """Prices of the rows that were asked for last: the orders of a use see the same pools beside the same networks."""

    def __init__(self, halves: Prices) -> None:
        self.halves = halves
        self.use: Use = ()
        self.known: dict[tuple[object, ...], Any] = {}

    def of(self, use: Use) -> Prices:
        """The prices for one use of the pools; those of another are forgotten."""
        if use != self.use:
            self.use = use
            self.known.clear()
        return Prices(time=self._time, micro_batch=self._micro_batch, memory=self._memory)

    def _time(self, job: Job, strategy: Strategy, calibration: Calibration) -> TimeTable:
        def make() -> TimeTable:
            return self.halves.time(job, strategy, calibration)

        found: TimeTable = self._kept(job, ("time", *_columns(strategy)), make)
        return found

    def _micro_batch(self, job: Job, strategy: Strategy, calibration: Calibration) -> TimeTable:
        def make() -> TimeTable:
            return self.halves.micro_batch(job, strategy, calibration)

        found: TimeTable = self._kept(job, ("micro_batch", *_columns(strategy)), make)
        return found

    def _memory(self, job: Job, strategy: Strategy, calibration: Calibration, risk: float) -> MemoryTable:
        def make() -> MemoryTable:
            return self.halves.memory(job, strategy, calibration, risk)

        found: MemoryTable = self._kept(job, ("memory", *_columns(strategy)), make)
        return found

    def _kept(self, job: Job, columns: tuple[object, ...], make: Callable[[], Any]) -> Any:
        """What was made for this view and these rows; a pool that is kept beside it keeps its identity."""
        links = [link and (link.name, link.bandwidth, link.latency_seconds) for link in (job.boundary, job.ends)]
        key = (id(job.pool), *links, *columns)
        if key not in self.known:
            self.known[key] = job.pool, make()
        return self.known[key][1]


def _columns(strategy: Strategy) -> tuple[bytes, ...]:
    return tuple(np.asarray(getattr(strategy, f.name)).tobytes() for f in fields(strategy))


@dataclass(slots=True)
class _Pools:
    """The arrangements of a problem, their spaces as far as they were needed, and what was found."""

    problem: Problem
    prices: _Remembered
    pruning: Pruning
    progress: Progress | None
    ticks: dict[int, float]
    """Device time of each pool for one sequence, at the least; 0 where nothing is known of it (injected prices)."""
    bytes: tuple[float, dict[int, float]]
    """What all devices must hold together, and what one of each pool holds."""
    counters: Counters = field(default_factory=Counters)
    known: dict[Use, tuple[BackendSpace, ...]] = field(default_factory=dict)
    raw: int = 0
    legal: int = 0
    runners_up: list[Open] = field(default_factory=list)

    def part(self, arrangement: Arrangement) -> Problem:
        """The problem with its pools arranged."""
        return replace(self.problem, arrangement=arrangement)

    def run(self, part: Problem) -> Run:
        """The searches of a part, counted with those of the others."""
        use = () if part.arrangement is None else part.arrangement.use
        return Run(part, self.prices.of(use), self.pruning, self.progress, counters=self.counters)

    def spaces(self, part: Problem) -> tuple[BackendSpace, ...]:
        """Spaces depend on how many devices each pool gives, not on their order."""
        assert part.arrangement is not None
        use = part.arrangement.use
        if use not in self.known:
            run = self.run(part)
            self.known[use] = run.rows(part)
            self.raw, self.legal = self.raw + run.raw, self.legal + run.legal
        return self.known[use]

    def offered(self) -> tuple[Arrangement, ...]:
        """Arrangements with as many devices as may be used."""
        limits, stated = self.problem.limits, self.problem.domains.values.get("gpus")
        whole = self.problem.objectives[0] == "memory"
        low, high = limits.min_gpus or 1, limits.max_gpus or self.problem.job.cluster.gpus
        need, holds = self.bytes
        wishes = [wish for wish in self.problem.requirements if wish.key == "gpus"]
        return tuple(
            arrangement
            for arrangement in arrangements(self.problem.job.cluster, whole=whole)
            if low <= arrangement.gpus <= high
            and need <= sum(count * holds[pool] for pool, count in arrangement.parts)
            and (stated is None or arrangement.gpus in stated)
            and all(wish.admits(arrangement.gpus) for wish in wishes)
        )


def solve_pools(
    problem: Problem, progress: Progress | None, *, pricing: Pricing | None, pruning: Pruning, check: bool
) -> Solution:
    """The best configuration over all arrangements of the pools with its proof, or the proof that there is none.

    Raises:
        LimitReached: the budget ran out before any configuration was found.
        VerificationFailed: the scalar ledger contradicts the winner.
    """
    halves = prices(pricing)
    ticks, needed = dict.fromkeys(problem.pools, 0.0), (0.0, dict.fromkeys(problem.pools, 0.0))
    if pricing is None and pruning.topology_floor:
        ticks = device_ticks(problem, halves.time)
    if pricing is None and pruning.necessary_memory:
        needed = device_bytes(problem, halves.memory)
    pools = _Pools(problem, _Remembered(halves), pruning, progress, ticks, needed)
    chain = [goal.name for goal in objectives(_priced(problem))]
    offered, values, last = pools.offered(), list[Achieved](), None
    for name in chain:
        last = _proven(pools, offered, name, values, last, final=name == chain[-1])
        if last is None or last.incumbent is None:
            if not pools.counters.exhausted:
                raise LimitReached(f"nothing found after {pools.counters.solved} solves; a larger budget may find it")
            return replace(infeasible(pools.run(problem), ()), candidates=_candidates(pools))
        goal = objective(name, last.question.problem)
        values.append(Achieved(goal, last.incumbent.value, last.bound))
        if name == "gpus":
            offered = tuple(a for a in offered if a.gpus <= last.incumbent.value)
    assert last is not None
    answer = _answer(pools, values, last, check=check and pricing is None)
    part = part_of_pools(problem.job.cluster.pools)
    if part != PARTS[0] and problem.objectives[0] != "memory":
        answer = replace(answer, notes=(*answer.notes, f"only {part} were combined: there are too many smaller parts"))
    return replace(answer, gpus_considered=tuple(sorted({a.gpus for a in pools.offered()})))


def feasible_over_pools(problem: Problem, limit: Caps | None) -> tuple[Problem, Incumbent | None, Counters, int]:
    """The first arrangement with any configuration, the configuration, what was done and the legal rows looked at.

    `limit` says which memories are set aside. Most devices come first: they hold most.
    """
    held = limit or Caps()
    halves = prices(None)
    needed = (0.0, dict.fromkeys(problem.pools, 0.0))
    if held.device_memory:
        needed = device_bytes(problem, halves.memory)
    pools = _Pools(problem, _Remembered(halves), Pruning(), None, dict.fromkeys(problem.pools, 0.0), needed)
    part, found = _priced(problem), None
    for arrangement in sorted(pools.offered(), key=lambda one: -one.gpus):
        part = pools.part(arrangement)
        asked = replace(caps(part), device_memory=held.device_memory, host_memory=held.host_memory)
        pools.prices.halves = halves if asked.on_time else replace(halves, time=no_time)
        found = pools.run(part).search(ANY, asked, pools.spaces(part)).incumbent
        if found is not None:
            break
    return part, found, pools.counters, pools.legal


def _priced(problem: Problem) -> Problem:
    """The problem with some arrangement: objectives are named alike in all of them."""
    whole = tuple((index, pool.gpus) for index, pool in enumerate(problem.job.cluster.pools))
    return replace(problem, arrangement=Arrangement(0, whole))


def _proven(
    pools: _Pools,
    offered: Iterable[Arrangement],
    name: ObjectiveName,
    values: list[Achieved],
    last: Standing | None,
    *,
    final: bool,
) -> Standing | None:
    """The best of all arrangements by one objective, with the earlier ones held at their values."""
    best = None
    if last is not None and last.incumbent is not None:
        goal = objective(name, last.question.problem)
        best = replace(last, question=replace(last.question, objective=goal), incumbent=restated(goal, last.incumbent))
    bound: Fraction | None = None
    for part, goal, limit in _ordered(pools, offered, name, values):
        incumbent = None if best is None else best.incumbent
        assert part.arrangement is not None
        if beaten(arrangement_floor(part, part.arrangement, goal, pools.ticks), incumbent):
            break
        if name == "gpus" and incumbent is not None and part.arrangement.gpus >= incumbent.value:
            break
        # Any configuration of fewer devices will do: one that is known already would end the search at once.
        start = None if name == "gpus" else incumbent
        found = pools.run(part).search(goal, limit, pools.spaces(part), start, final)
        bound = found.bound if bound is None or found.bound is None else min(bound, found.bound)
        pools.runners_up += found.runners_up if goal.rate is None else []
        if found.incumbent is not None and found.incumbent is not incumbent:
            best = found
    return best and replace(best, bound=bound)


def _ordered(
    pools: _Pools, offered: Iterable[Arrangement], name: ObjectiveName, values: list[Achieved]
) -> Iterator[tuple[Problem, Objective, Caps]]:
    """Arrangements by ascending floor (of devices: by ascending number), each with its objective and its caps.

    Of equal ones those with the slow pools first, which good plans often have: the first stages hold the most
    micro-batches in flight, and a slow stage few layers.
    """
    found = []
    for arrangement in offered:
        part = pools.part(arrangement)
        goal = objective(name, part)
        floors = [(arrangement_floor(part, arrangement, objective(v.goal.name, part), pools.ticks), v) for v in values]
        if all(lower <= float(value.exact) * (1 + 1e-12) for lower, value in floors):
            first = arrangement.gpus if name == "gpus" else arrangement_floor(part, arrangement, goal, pools.ticks)
            slowest = tuple(-pools.ticks[pool] for pool in arrangement.pools)
            found.append((first, -arrangement.gpus, slowest, arrangement.turn, part, goal))
    for *_, part, goal in sorted(found, key=lambda entry: entry[:4]):
        limit = caps(part)
        for value in values:
            limit = limit.after(objective(value.goal.name, part), value.exact)
        yield part, goal, limit


def _candidates(pools: _Pools) -> Candidates:
    return replace(pools.counters.candidates(()), raw=pools.raw, legal=pools.legal)


def _answer(pools: _Pools, values: list[Achieved], last: Standing, *, check: bool) -> Solution:
    part = last.question.problem
    values = [replace(value, goal=objective(value.goal.name, part)) for value in values]
    run, legal = pools.run(part), pools.spaces(part)
    notes = unproven(part, values, pools.counters.exhausted)
    if pools.problem.objective_tolerance and pools.counters.exhausted:
        last = simplest(run, [value.goal for value in values], values, legal, last)
        notes = (*notes, "objective_tolerance: simplest of the configurations that arrange the pools as the best one")
    last.incumbent, plain = plainest_layout(part, last, within(part, values))
    notes += () if plain else ("no layout of the stages is proven to be the plainest of equal value",)
    if check:
        _verify.verify(part, last.incumbent)
    last.runners_up = pools.runners_up or last.runners_up
    solution = solution_of(run, legal, values, last)
    return replace(solution, candidates=_candidates(pools), notes=notes)
