"""The proof of an answer: its exact values, every legal row with its argument, models for CP-SAT to solve again."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Final

import numpy as np

from cost_models.specs.choices import BACKENDS
from cost_models.specs.configuration import Configuration
from cost_models.strategy import Strategy
from solver.audit.answered import Answered, Model, Rows, answered, nearest, rows_of, settle
from solver.audit.arguments import Asked, claimed_row, discard
from solver.audit.claim import Best, Question, questions
from solver.audit.grid import TICK
from solver.audit.models import model_text, plainer_text
from solver.audit.row import Part
from solver.audit.space import Spaces, every_space
from solver.objectives import Objective, objectives
from solver.problem import Problem
from solver.simplicity import simplicity

MARGIN: Final = Fraction(3, 10**12)
"""Of bounds that were floats, relatively."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One objective as claimed, on the grid: exact, and the bound that nothing undercuts."""

    name: str
    unit: str
    exact: Fraction
    bound: Fraction
    scale: float
    """From exact values to the unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What can be checked about an answer."""

    values: tuple[Value, ...]
    best: Best | None
    spaces: tuple[Rows, ...]
    answers: tuple[Answered, ...]
    models: tuple[Model, ...]
    rounding_seconds: float
    """Most by which the grid lengthens the step of any legal row."""
    contradictions: tuple[str, ...]
    """Rows that beat the claim, or that nothing discards; none when it is right."""
    arrangements: tuple["ArrangementProof", ...] = ()
    """Of several pools, each with its own spaces, answers and models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrangementProof:
    """Why one arrangement of the pools has no configuration that contradicts the claim."""

    parts: tuple[tuple[int, int], ...]
    """Pool and devices, along the pipeline."""
    floor_seconds: float
    """Time of one sequence, at the least."""
    ruled_out: tuple[str, ...]
    """Questions that the floor or the number of devices answers alone."""
    spaces: tuple[Rows, ...]
    answers: tuple[Answered, ...]
    """To the other questions."""
    models: tuple[Model, ...]


def place(configuration: Configuration, spaces: Spaces) -> Best | None:
    """Where a configuration stands among the legal rows; None where it is none of them."""
    name, wanted = configuration.backend.name, Strategy.of(configuration)
    if name not in spaces:
        return None
    rows = spaces[name]
    same = np.ones(len(rows), dtype=bool)
    for f in fields(Strategy):
        same &= np.asarray(getattr(rows, f.name)) == getattr(wanted, f.name)
    at = np.nonzero(same)[0]
    if not len(at):
        return None
    return Best(backend=BACKENDS.index(name), row=int(at[0]), simplicity=int(simplicity(wanted)))


def parts(configuration: Configuration) -> tuple[Part, ...]:
    """The layout of a configuration."""
    return tuple(
        Part(s.layers, s.recompute.full, s.recompute.selective, s.optimizer_layers_offloaded)
        for s in configuration.stages
    )


def prove(problem: Problem, configuration: Configuration | None, bounds: tuple[Fraction, ...] | None = None) -> Proof:
    """The proof that a configuration is best, that with `bounds` nothing undercuts them, or that there is none."""
    spaces = every_space(problem)
    best = None if configuration is None else place(configuration, spaces)
    chain, contradictions = objectives(problem), list[str]()
    if configuration is not None and best is None:
        return refuted(f"{configuration.backend.name}: the configuration is no legal row of the space")
    values: tuple[Value, ...] = ()
    models: list[Model] = []
    if configuration is not None and best is not None:
        row = claimed_row(problem, BACKENDS[best.backend], best.row, spaces)
        exact = exact_values(chain, row, parts(configuration))
        models += claimed_models(problem, chain, exact, row, parts(configuration), bounds)
        values = tuple(
            Value(name=goal.name, unit=goal.unit, exact=value, bound=bound, scale=goal.scale)
            for goal, value, bound in zip(chain, exact, bounds or exact, strict=True)
        )
    if bounds is not None and problem.objective_tolerance:
        contradictions += _unattained(problem, chain, bounds, spaces)
    asked = questions(
        chain,
        tuple(v.exact for v in values),
        best,
        tuple(v.bound for v in values) if bounds else None,
        problem.objective_tolerance if bounds else 0.0,
    )
    answers, longest = [], 0.0
    for question in asked:
        found = list(discard(problem, question, spaces))
        contradictions += settle(question, found)
        models += nearest(question, found)
        answers.append(answered(question, found))
        longest = max([longest, *(rounding_of(problem, part.rows) for part in found)])
    return Proof(
        values=values,
        best=best,
        spaces=tuple(rows_of(backend, rows) for backend, rows in spaces.items()),
        answers=tuple(answers),
        models=tuple(models),
        rounding_seconds=longest * TICK,
        contradictions=tuple(contradictions),
    )


def exact_values(chain: tuple[Objective, ...], row: Asked, layout: tuple[Part, ...]) -> tuple[Fraction, ...]:
    """Values of a layout on the grid."""
    time, peak = row.row.cost(layout)
    return tuple(
        Fraction(int(row.strategy.world_size))
        if goal.name == "gpus"
        else goal.weight(row.strategy) * (peak if goal.goal == "memory" else time)
        for goal in chain
    )


def _unattained(
    problem: Problem, chain: tuple[Objective, ...], bounds: tuple[Fraction, ...], spaces: Spaces
) -> Iterator[str]:
    """Bounds that a tolerance is counted from must be reached by some configuration."""
    within = tuple((goal, bound * (1 + MARGIN)) for goal, bound in zip(chain, bounds, strict=True))
    question = Question(name="attained", within=within)
    found = list(discard(problem, question, spaces))
    if not list(settle(question, found)):
        yield "no configuration reaches the bounds that the tolerance is counted from"


def claimed_models(
    problem: Problem,
    chain: tuple[Objective, ...],
    exact: tuple[Fraction, ...],
    row: Asked,
    layout: tuple[Part, ...],
    bounds: tuple[Fraction, ...] | None,
) -> Iterator[Model]:
    """The claimed row's own models, if it is claimed to be best: its minimum, and that no layout as good is plainer."""
    if bounds is not None and not problem.objective_tolerance:
        return
    allowed = exact
    if bounds is not None:
        allowed = (*(bound * (1 + Fraction(problem.objective_tolerance)) for bound in bounds[:-1]), exact[-1])
    time, peak = _limits(chain[:-1], allowed, row, (row.most_time, row.most_peak))
    text = model_text(row.row, time, peak, minimise=True, goal=chain[-1].goal)
    optimum = exact[-1] / chain[-1].weight(row.strategy)
    yield Model(purpose="optimum", backend=row.backend, row=row.index, optimum=int(optimum), text=text)
    time, peak = _limits(chain[-1:], allowed[-1:], row, (time, peak))
    text = plainer_text(row.row, time, peak, layout)
    yield Model(purpose="plainer", backend=row.backend, row=row.index, optimum=None, text=text)


def _limits(
    goals: tuple[Objective, ...], values: tuple[Fraction, ...], row: Asked, limits: tuple[float, float]
) -> tuple[float, float]:
    """Limits on time and peak of a row that meets these values too."""
    time, peak = limits
    for goal, value in zip(goals, values, strict=False):
        if goal.goal == "time":
            time = min(time, float(value / goal.weight(row.strategy)))
        elif goal.goal == "memory":
            peak = min(peak, float(value))
    return time, peak


def refuted(why: str) -> Proof:
    """Nothing but what contradicts the claim."""
    return Proof(values=(), best=None, spaces=(), answers=(), models=(), rounding_seconds=0.0, contradictions=(why,))


def rounding_of(problem: Problem, rows: Strategy) -> float:
    """Most ticks that rounding up adds to a step: one for every coefficient and use (docs/what-is-proven.md)."""
    m, v = np.asarray(rows.gradient_accumulation_steps), np.asarray(rows.virtual_pipeline_stages)
    layers = problem.job.model.num_hidden_layers
    most = (m - 1 / v) * (layers + 1) + (layers + np.asarray(rows.pipeline_parallel)) / v + 2 * layers + 2
    return float(most.max(initial=0.0))


def rounding_units(problem: Problem) -> int:
    """Most units that rounding adds to the need of a stage: one for every layer, for the constant, for what works, for
    every layer that is offloaded, and one that the capacity loses.
    """
    return 2 * problem.job.model.num_hidden_layers + 3
