"""Solve: the objectives of a problem one after the other, each proven before the next; then verify the winner."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from importlib.metadata import version

import numpy as np

from solver import verify as _verify
from solver.alternatives import alternatives
from solver.best_first import search
from solver.caps import Caps, caps
from solver.dominance import Pruning, reduced
from solver.errors import LimitReached
from solver.incumbent import Incumbent
from solver.inner import parameters
from solver.layout import cost
from solver.objectives import Objective, objectives
from solver.part import worth_asking
from solver.plainest import plainest
from solver.problem import Pricing, Problem, Progress
from solver.rounding import MEMORY_UNIT
from solver.rows import Prices, prices
from solver.simplicity import simplicity
from solver.solution import Candidates, ObjectiveValue, Solution
from solver.space import BackendSpace, spaces
from solver.standing import Counters, Question, Standing


@dataclass(slots=True)
class Run:
    """The searches of one question, which share their prices and count together."""

    problem: Problem
    prices: Prices
    pruning: Pruning
    progress: Progress | None
    counters: Counters = field(default_factory=Counters)
    raw: int = 0
    legal: int = 0

    def search(
        self,
        goal: Objective,
        limit: Caps,
        at: Sequence[BackendSpace],
        start: Incumbent | None = None,
        last: bool = True,
    ) -> Standing:
        """One search, run."""
        question = Question(
            problem=self.problem,
            spaces=at,
            prices=self.prices,
            objective=goal,
            caps=limit,
            pruning=self.pruning,
            last=last,
        )
        standing = Standing(question=question, counters=self.counters, progress=self.progress, incumbent=start)
        search(question, standing)
        return standing


def solve(
    problem: Problem,
    progress: Progress | None = None,
    *,
    pricing: Pricing | None = None,
    pruning: Pruning = Pruning(),
    check: bool = True,
) -> Solution:
    """The best configuration of a problem with its proof, or the proof that there is none.

    `pricing` replaces the cost models (the winner is then not verified against their ledger, nor with `check` off).

    Raises:
        LimitReached: the budget ran out before any configuration was found.
        VerificationFailed: the scalar ledger contradicts the winner.
    """
    if len(problem.job.cluster.pools) > 1 and problem.arrangement is None:
        from solver.pools import solve_pools  # noqa: PLC0415  it runs the searches of this module

        return solve_pools(problem, progress, pricing=pricing, pruning=pruning, check=check)
    run = Run(problem, prices(pricing), pruning, progress)
    chain = objectives(problem)
    legal, chain_values, last = _first(run, chain)
    if last is None or last.incumbent is None:
        if not run.counters.exhausted:
            raise LimitReached(
                f"nothing found after {run.counters.priced} priced rows and {run.counters.solved} solves; "
                "a larger budget may find something"
            )
        return infeasible(run, legal)
    limit = caps(problem)
    for goal, value in zip(chain, chain_values, strict=False):
        limit = limit.after(goal, value.exact)
    for goal in chain[len(chain_values) :]:
        start = restated(goal, last.incumbent)
        last = run.search(goal, limit, legal, start, goal is chain[-1])
        assert last.incumbent is not None, "the start is feasible"
        chain_values.append(Achieved(goal, last.incumbent.value, last.bound))
        limit = limit.after(goal, last.incumbent.value)
    proven = run.counters.exhausted
    notes = unproven(problem, chain_values, proven)
    if problem.objective_tolerance and proven:
        last = simplest(run, chain, chain_values, legal, last)
        if not run.counters.exhausted:
            notes = ("the budget ran out: a simpler configuration within objective_tolerance may exist",)
        limit = within(problem, chain_values)
    assert last.incumbent is not None
    last.incumbent, plain = plainest_layout(problem, last, limit)
    notes += () if plain else ("no layout of the stages is proven to be the plainest of equal value",)
    if check and pricing is None:
        _verify.verify(problem, last.incumbent)
    return replace(solution_of(run, legal, chain_values, last), notes=notes)


def unproven(problem: Problem, values: "Sequence[Achieved]", exhausted: bool) -> tuple[str, ...]:
    """What was left undone when the budget ran out."""
    if exhausted:
        return ()
    open_ = [v.goal.name for v in values if v.bound is not None and v.bound < v.exact]
    notes = [f"the budget ran out before {', '.join(open_)} was proven best; gap says how far off it can be"]
    if problem.objective_tolerance:
        notes.append(
            f"objective_tolerance {problem.objective_tolerance} was not applied: "
            "the budget ran out before the objectives were proven"
        )
    return tuple(notes if open_ else notes[1:])


@dataclass(frozen=True, slots=True)
class Achieved:
    """An objective's value and what bounds it."""

    goal: Objective
    exact: Fraction
    bound: Fraction | None


def restated(goal: Objective, found: Incumbent) -> Incumbent:
    """The incumbent valued by the next objective."""
    return replace(found, value=goal.value(found.strategy, found.cost))


def _first(run: Run, chain: Sequence[Objective]) -> tuple[tuple[BackendSpace, ...], list[Achieved], Standing | None]:
    """The first objective over the whole space; fewest devices by ascending count: step time is not monotone in it."""
    problem = run.problem
    if chain[0].name != "gpus":
        legal = reduced(problem, spaces(problem), run.pruning)
        found = run.search(chain[0], caps(problem), legal, last=len(chain) == 1)
        counted_in(run, legal)
        legal, found = _or_a_part(run, chain, legal, found)
        values = [] if found.incumbent is None else [Achieved(chain[0], found.incumbent.value, found.bound)]
        return legal, values, found
    legal, last = (), None
    for count in sorted(int(n) for n in problem.resolved_domains["gpus"] or ()):
        domains = problem.domains.with_values(gpus=(count,))
        legal = reduced(problem, spaces(replace(problem, domains=domains)), run.pruning)
        last = run.search(chain[0], caps(problem), legal)
        counted_in(run, legal)
        if last.incumbent is not None:
            bound = None if run.counters.exhausted else Fraction(1)
            return legal, [Achieved(chain[0], last.incumbent.value, bound)], last
    return legal, [], last


def _or_a_part(
    run: Run, chain: Sequence[Objective], whole: tuple[BackendSpace, ...], found: Standing
) -> tuple[tuple[BackendSpace, ...], Standing]:
    """The best of the whole cluster, or of a part of it where the batch keeps the whole from being the fastest."""
    problem, best = run.problem, found.incumbent
    counts = run.counters.exhausted and worth_asking(problem, run.prices, None if best is None else float(best.value))
    if not counts:
        return whole, found
    asked = replace(problem, domains=problem.domains.with_values(gpus=counts))
    part = reduced(asked, spaces(asked), run.pruning)
    counted_in(run, part)
    at = (*(replace(space, legal=np.zeros_like(space.legal)) for space in whole), *part)
    again = run.search(chain[0], caps(problem), at, best, len(chain) == 1)
    found = replace(found, bound=again.bound) if again.incumbent is best else again
    run.problem = replace(problem, domains=problem.domains.with_values(gpus=(*counts, problem.job.cluster.gpus)))
    return (*whole, *part), found


def counted_in(run: Run, legal: Sequence[BackendSpace]) -> None:
    """Add the sizes of spaces that a run looks at."""
    counted = run.counters.candidates(legal)
    run.raw += counted.raw
    run.legal += counted.legal


def within(problem: Problem, values: Sequence[Achieved]) -> Caps:
    """What the tolerance of every objective leaves."""
    limit = caps(problem)
    for value in values:
        limit = limit.after(value.goal, value.exact, problem.objective_tolerance)
    return limit


def plainest_layout(problem: Problem, last: Standing, limit: Caps) -> tuple[Incumbent, bool]:
    """The winner with the plainest of its row's layouts that are as good, and whether that is proven."""
    found, goal = last.incumbent, last.question.objective
    assert found is not None
    held = limit.after(goal, found.value)
    most = held.max_memory_bytes
    plain = plainest(
        found.row,
        found.layout,
        problem.budget.row_deterministic_time,
        most_time=int(held.max_times(found.strategy)[0]),
        most_memory=None if most is None else int(most // MEMORY_UNIT),
    )
    return replace(found, layout=plain.layout, cost=cost(found.row, plain.layout)), plain.proven


def simplest(
    run: Run, chain: Sequence[Objective], values: Sequence[Achieved], legal: tuple[BackendSpace, ...], last: Standing
) -> Standing:
    """The simplest configuration within the tolerance of every objective; among equals the best by the last one.

    Levels of simplicity ascend, each is searched to the end: the first with a configuration is proven simplest.
    """
    limit, goal = within(run.problem, values), chain[-1]
    assert last.incumbent is not None
    levels: set[int] = set()
    scores = []
    for space in legal:
        topology, feature = space.rows(np.arange(space.size))
        score = simplicity(space.strategy(topology, feature))
        scores.append((topology, feature, score))
        levels |= set(score.tolist())
    for level in sorted(levels):
        if level > last.incumbent.simplicity:
            return last
        narrowed = []
        for space, (topology, feature, score) in zip(legal, scores, strict=True):
            mask = np.zeros_like(space.legal)
            at = score == level
            mask[topology[at], feature[at]] = True
            narrowed.append(replace(space, legal=mask))
        found = run.search(goal, limit, narrowed, last.incumbent if level == last.incumbent.simplicity else None)
        if found.incumbent is not None:
            return found
        if not run.counters.exhausted:
            return last
    return last


def infeasible(run: Run, legal: Sequence[BackendSpace]) -> Solution:
    """The answer that there is no configuration."""
    return Solution(
        status="infeasible",
        configuration=None,
        objectives=(),
        candidates=_candidates(run),
        dropped=tuple(d for space in legal for d in space.dropped),
        ortools=version("ortools"),
        parameters=_parameters(run),
        gpus_considered=_gpus(run),
    )


def _candidates(run: Run) -> Candidates:
    c = run.counters
    return Candidates(raw=run.raw, legal=run.legal, priced=c.priced, bounded=c.bounded, solved=c.solved)


def _parameters(run: Run) -> str:
    stated = parameters(run.problem.budget.row_deterministic_time)
    return " ".join(f"{name}: {value:g}" for name, value in stated.items())


def _gpus(run: Run) -> tuple[int, ...]:
    return tuple(sorted(int(n) for n in run.problem.resolved_domains["gpus"] or ()))


def solution_of(run: Run, legal: Sequence[BackendSpace], values: Sequence[Achieved], last: Standing) -> Solution:
    """What the last search found, with the values of every objective."""
    found = last.incumbent
    assert found is not None
    closed = all(value.bound is None or value.bound >= value.exact for value in values)
    stated = tuple(
        ObjectiveValue(
            name=value.goal.name,
            unit=value.goal.unit,
            value=float(value.goal.value(found.strategy, found.cost)) * value.goal.scale
            if run.problem.objective_tolerance
            else float(value.exact) * value.goal.scale,
            bound=float(value.exact if value.bound is None else min(value.bound, value.exact)) * value.goal.scale,
        )
        for value in values
    )
    return Solution(
        status="optimal" if run.counters.exhausted or closed else "feasible",
        configuration=_verify.configuration(run.problem, found.strategy, found.layout, found.placement),
        objectives=stated,
        candidates=_candidates(run),
        dropped=tuple(d for space in legal for d in space.dropped),
        alternatives=alternatives(run.problem, last, found),
        ortools=version("ortools"),
        parameters=_parameters(run),
        rounding_seconds=_verify.rounding_seconds(found),
        gpus_considered=_gpus(run),
    )


Solver = Callable[[Problem], Solution]
