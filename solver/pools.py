"""Several pools: every arrangement of them is a search of its own, best floor first, with the incumbent carried over.

An arrangement says how many devices each pool gives and in which order the pools follow along the pipeline; leaving
devices idle is an arrangement as any other. Once the floor of the next one is above the incumbent, nothing that is left
can win.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction

from solver import verify as _verify
from solver.arrangement import Arrangement, arrangements
from solver.best_first import reduced
from solver.bounds.pools import device_ticks, floor
from solver.caps import Caps, caps
from solver.dominance import Pruning
from solver.errors import LimitReached
from solver.incumbent import beaten
from solver.objectives import Objective, objective, objectives
from solver.problem import ObjectiveName, Pricing, Problem, Progress
from solver.rows import Prices, prices
from solver.search import Achieved, Run, counted_in, infeasible, restated, simplest, solution_of, unproven
from solver.solution import Candidates, Solution
from solver.space import BackendSpace, spaces
from solver.standing import Counters, Open, Standing


@dataclass(slots=True)
class _Pools:
    """The arrangements of a problem, their spaces as far as they were needed, and what was found."""

    problem: Problem
    prices: Prices
    pruning: Pruning
    progress: Progress | None
    ticks: dict[int, float]
    """Device time of each pool for one sequence, at the least; 0 where nothing is known of it, as with injected prices."""
    counters: Counters = field(default_factory=Counters)
    known: dict[tuple[tuple[int, int], ...], tuple[BackendSpace, ...]] = field(default_factory=dict)
    raw: int = 0
    legal: int = 0
    runners_up: list[Open] = field(default_factory=list)

    def part(self, arrangement: Arrangement) -> Problem:
        """The problem with its pools arranged."""
        return replace(self.problem, arrangement=arrangement)

    def run(self, part: Problem) -> Run:
        """The searches of a part, counted with those of the others."""
        return Run(part, self.prices, self.pruning, self.progress, counters=self.counters)

    def spaces(self, part: Problem) -> tuple[BackendSpace, ...]:
        """Spaces depend on how many devices each pool gives, not on their order."""
        assert part.arrangement is not None
        key = tuple(sorted(part.arrangement.parts))
        if key not in self.known:
            self.known[key] = reduced(part, spaces(part), self.pruning)
            run = self.run(part)
            counted_in(run, self.known[key])
            self.raw, self.legal = self.raw + run.raw, self.legal + run.legal
        return self.known[key]

    def offered(self) -> tuple[Arrangement, ...]:
        """Arrangements with as many devices as may be used."""
        limits, stated = self.problem.limits, self.problem.domains.values.get("gpus")
        whole = self.problem.objectives[0] == "memory"
        low, high = limits.min_gpus or 1, limits.max_gpus or self.problem.job.cluster.gpus
        return tuple(
            arrangement
            for arrangement in arrangements(self.problem.job.cluster, whole=whole)
            if low <= arrangement.gpus <= high and (stated is None or arrangement.gpus in stated)
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
    ticks = dict.fromkeys(problem.pools, 0.0)
    if pricing is None and pruning.topology_floor:
        ticks = device_ticks(problem, halves.time)
    pools = _Pools(problem, halves, pruning, progress, ticks)
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
    return _answer(pools, values, last, check=check and pricing is None)


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
        if beaten(floor(part, part.arrangement, goal, pools.ticks), incumbent):
            break
        if name == "gpus" and incumbent is not None and part.arrangement.gpus >= incumbent.value:
            break
        found = pools.run(part).search(goal, limit, pools.spaces(part), incumbent, final)
        bound = found.bound if bound is None or found.bound is None else min(bound, found.bound)
        pools.runners_up += found.runners_up if goal.rate is None else []
        if found.incumbent is not None and found.incumbent is not incumbent:
            best = found
    return best and replace(best, bound=bound)


def _ordered(
    pools: _Pools, offered: Iterable[Arrangement], name: ObjectiveName, values: list[Achieved]
) -> Iterator[tuple[Problem, Objective, Caps]]:
    """Arrangements by ascending floor (of devices: by ascending number), each with its objective and its caps."""
    found = []
    for arrangement in offered:
        part = pools.part(arrangement)
        goal = objective(name, part)
        floors = [(floor(part, arrangement, objective(v.goal.name, part), pools.ticks), v) for v in values]
        if all(lower <= float(value.exact) * (1 + 1e-12) for lower, value in floors):
            first = arrangement.gpus if name == "gpus" else floor(part, arrangement, goal, pools.ticks)
            found.append((first, -arrangement.gpus, arrangement.turn, part, goal))
    for _, _, _, part, goal in sorted(found, key=lambda entry: entry[:3]):
        limit = caps(part)
        for value in values:
            limit = limit.after(objective(value.goal.name, part), value.exact)
        yield part, goal, limit


def _candidates(pools: _Pools) -> Candidates:
    return replace(pools.counters.candidates(()), raw=pools.raw, legal=pools.legal)


def _answer(pools: _Pools, values: list[Achieved], last: Standing, *, check: bool) -> Solution:
    part = last.question.problem
    run, legal = pools.run(part), pools.spaces(part)
    notes = unproven(part, values, pools.counters.exhausted)
    if pools.problem.objective_tolerance and pools.counters.exhausted:
        last = simplest(run, [value.goal for value in values], values, legal, last)
        notes = (*notes, "objective_tolerance: simplest of the configurations that arrange the pools as the best one")
    assert last.incumbent is not None
    if check:
        _verify.verify(part, last.incumbent)
    last.runners_up = pools.runners_up or last.runners_up
    solution = solution_of(run, legal, values, last)
    return replace(solution, candidates=_candidates(pools), notes=notes)
