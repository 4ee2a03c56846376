"""Limits: how far each limit of a conflict must move alone, the others in force, before a configuration exists."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import Any

from cost_models.ledger import estimate
from cost_models.specs.configuration import Configuration
from solver.caps import caps
from solver.dominance import Pruning
from solver.feasibility import feasible_or_none
from solver.levers import Number
from solver.objectives import TIMED, limited, objective
from solver.part import with_parts
from solver.problem import Problem
from solver.relaxations import Relaxation, moved
from solver.rows import prices
from solver.run import Run
from solver.verify import configuration

MEASURED = ("max_step_seconds", "max_memory_bytes", "max_host_memory_bytes", *TIMED)
"""Limits on what a search can minimise, or halve its way to."""
SHARE = "max_communication_fraction"
HALVINGS, NEAR = 8, 1.25
"""Most halvings of the way between a share that works and one that does not, and how near suffices: their ratio."""
FIGURES = 3
"""Of a printed limit."""
MIB = 2**20
BYTES = ("max_memory_bytes", "max_host_memory_bytes")
UNITS = {"max_step_seconds": " s", "max_energy_per_step": " J"}
"""Where the name of a limit leaves the figure without one."""


def moved_limits(problem: Problem, names: Sequence[str]) -> Iterator[Relaxation]:
    """Each of these limits at the least figure that works: the optimum of what it holds, rounded to what is printed.

    The share of communication, which no search minimises, at a figure that works.
    """
    for name in names:
        if name in MEASURED:
            yield _moved(problem, name)
        elif name == SHARE:
            yield _shared(problem)


def _moved(problem: Problem, name: str) -> Relaxation:
    said = f"constraints.{name}: any (instead of {figure(name, getattr(problem.limits, name))})"
    least = _least_host(problem) if name == "max_host_memory_bytes" else _optimum(_at(problem, name, None), name)
    if least is None:
        return Relaxation(lever=name, change=f"without constraints.{name}", feasible=False)
    return _first(problem, name, least, proven=True) or Relaxation(lever=name, change=said, feasible=False)


def _shared(problem: Problem) -> Relaxation:
    """A share of communication that works: that of the fastest without the limit, brought near to one that does not."""
    low = float(problem.limits.max_communication_fraction or 0)
    found = _fastest(_at(problem, SHARE, None))
    works = found and _first(problem, SHARE, _share(problem, found), proven=False)
    if not works:
        return Relaxation(lever=SHARE, change=f"without constraints.{SHARE}", feasible=False)
    for _ in range(HALVINGS):
        assert works.configuration is not None, "it works"
        if float(works.value or 0) <= NEAR * low:
            break
        middle = (low + min(float(works.value or 0), _share(problem, works.configuration))) / 2
        less = _first(problem, SHARE, middle, proven=False, tries=1)
        works, low = (less, low) if less else (works, middle)
    return works


def _fastest(problem: Problem) -> Configuration | None:
    problem = with_parts(problem)
    run = Run(problem, prices(None), Pruning(), None)
    found = run.search(objective("throughput", problem), caps(problem), run.rows(problem)).incumbent
    return None if found is None else configuration(problem, found.strategy, found.layout, found.placement)


def _share(problem: Problem, chosen: Configuration) -> float:
    """Of communication, by the ledger."""
    return estimate(problem.job, chosen, problem.calibration, oom_risk=problem.oom_risk).time.communication_fraction


def _first(problem: Problem, name: str, least: float, *, proven: bool, tries: int = 2) -> Relaxation | None:
    """The first figure at or beyond what is reached with which some configuration is verified to exist."""
    stated = getattr(problem.limits, name)
    for value in itertools.islice(_figures(name, least), tries):
        answer = feasible_or_none(_at(problem, name, value))
        if answer:
            return Relaxation(
                lever=name,
                change=f"constraints.{name}: {figure(name, value)} (instead of {figure(name, stated)})",
                feasible=True,
                value=value,
                infeasible_before=proven,
                configuration=answer.configuration,
                settings=(f"constraints.{name}={_text(name, value)}",),
            )
    return None


def _at(problem: Problem, name: str, value: float | None) -> Problem:
    changes: dict[str, Any] = {name: value}
    return replace(problem, limits=replace(problem.limits, **changes), alternatives=0)


def _optimum(problem: Problem, name: str) -> float | None:
    """The best that a configuration reaches of what a limit holds; None where there is none, or the budget ran out."""
    goal = objective("memory", problem) if name == "max_memory_bytes" else limited(name, problem)
    pruning = Pruning(accumulation=False)
    problem = with_parts(problem)
    run = Run(problem, prices(None), pruning, None)
    found = run.search(goal, caps(problem), run.rows(problem)).incumbent
    if found is None or not run.counters.exhausted:
        return None
    value = float(found.value) * goal.scale
    return 1 / value if name.startswith("min_") else value


def _least_host(problem: Problem) -> float | None:
    """Least host memory of a node, halved to: no search minimises it. None where all that a node has is not enough."""
    name, stated = "max_host_memory_bytes", problem.limits.max_host_memory_bytes or 0
    below, has = stated // MIB, max(pool.host_memory_bytes for pool in problem.job.cluster.pools)

    def value(_: Problem, units: int) -> int:
        return (below + units) * MIB

    lever = Number(
        name=name,
        at=lambda asked, units: _at(asked, name, value(asked, units)),
        text=lambda asked, units: figure(name, value(asked, units)),
        value=value,
        most=lambda _: -(-has // MIB) - below,
        room=True,
    )
    found = moved(problem, lever).value
    return float(found) if isinstance(found, int) else None


def _figures(name: str, least: float) -> Iterator[float | int]:
    """The figure at or just beyond the optimum, and the next: a limit is rounded to whole ticks, which may miss it."""
    if name in BYTES:
        # The ledger and the search, which rounds up, may differ where a MiB ends.
        whole = int(-(-least // MIB)) * MIB
        yield from (whole, whole + MIB)
        return
    lower = name.startswith("min_")
    context = Context(prec=FIGURES, rounding=ROUND_FLOOR if lower else ROUND_CEILING)
    first = context.create_decimal(repr(least))
    yield float(first)
    yield float(context.next_minus(first) if lower else context.next_plus(first))


def figure(name: str, value: float) -> str:
    """A limit as it is printed, with its unit."""
    return f"{_text(name, value)}{UNITS.get(name, '')}"


def _text(name: str, value: float) -> str:
    """As a request states it."""
    return f"{value / MIB:.10g}MiB" if name in BYTES else f"{value:.10g}"
