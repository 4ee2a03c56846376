"""Solve: the objectives of a problem one after the other, each proven before the next; then verify the winner."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from importlib.metadata import version

import numpy as np

from solver import verify as _verify
from solver.alternatives import alternatives
from solver.caps import Caps, caps
from solver.dominance import Pruning
from solver.errors import LimitReached
from solver.inner import parameters
from solver.objectives import Objective, objectives
from solver.part import worth_asking
from solver.problem import Pricing, Problem, Progress
from solver.rows import prices
from solver.run import Achieved, Run, restated
from solver.solution import Candidates, ObjectiveValue, Solution
from solver.space import BackendSpace, of_count
from solver.standing import Standing
from solver.ties import plainest_layout, simplest, within


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
        start = replace(last, incumbent=restated(goal, last.incumbent))
        if goal.name == "gpus":
            last, legal = _fewest(run, goal, limit, legal, start)
        else:
            last = run.search(goal, limit, legal, start.incumbent, goal is chain[-1])
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


def _first(run: Run, chain: Sequence[Objective]) -> tuple[tuple[BackendSpace, ...], list[Achieved], Standing | None]:
    """The first objective over the whole space; fewest devices by ascending count: step time is not monotone in it."""
    problem = run.problem
    if chain[0].name != "gpus":
        legal = run.rows(problem)
        found = run.search(chain[0], caps(problem), legal, last=len(chain) == 1)
        legal, found = _or_a_part(run, chain, legal, found)
        values = [] if found.incumbent is None else [Achieved(chain[0], found.incumbent.value, found.bound)]
        return legal, values, found
    legal, last = (), None
    for count in sorted(int(n) for n in problem.resolved_domains["gpus"] or ()):
        domains = problem.domains.with_values(gpus=(count,))
        legal = run.rows(replace(problem, domains=domains))
        last = run.search(chain[0], caps(problem), legal)
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
    part = run.rows(asked)
    at = (*(replace(space, legal=np.zeros_like(space.legal)) for space in whole), *part)
    again = run.search(chain[0], caps(problem), at, best, len(chain) == 1)
    found = replace(found, bound=again.bound) if again.incumbent is best else again
    run.problem = replace(problem, domains=problem.domains.with_values(gpus=(*counts, problem.job.cluster.gpus)))
    return (*whole, *part), found


def _fewest(
    run: Run, goal: Objective, limit: Caps, legal: Sequence[BackendSpace], start: Standing
) -> tuple[Standing, tuple[BackendSpace, ...]]:
    """Fewest devices that do as well as the start in what came before, by ascending count; and the rows that use them.

    The bound is the least count that a budget left open.
    """
    assert start.incumbent is not None
    most, bound = int(start.incumbent.value), None
    for count in sorted(int(n) for n in run.problem.resolved_domains["gpus"] or () if int(n) < most):
        narrowed = of_count(legal, count)
        found = run.search(goal, limit, narrowed)
        if found.incumbent is not None:
            return replace(found, bound=bound), narrowed
        if found.bound is not None:
            bound = bound or Fraction(count)
    question = replace(start.question, objective=goal, caps=limit)
    return replace(start, question=question, bound=bound), of_count(legal, most)


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
