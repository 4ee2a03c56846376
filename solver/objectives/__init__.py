"""Objectives: what a configuration is worth, exactly. Values are fractions of integers, compared without rounding.

Every objective is "less is better". Time-like ones weigh v times the step of a row by row constants, so the inner
model stays linear.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final

import numpy as np

from cost_models.arrays import FloatArray
from cost_models.specs.choices import ObjectiveName
from cost_models.specs.cluster import NodePool
from cost_models.strategy import Strategy
from solver.inner import Goal
from solver.layout import Cost
from solver.problem import Problem
from solver.rounding import MEMORY_UNIT, TICK_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """How a row's inner goal becomes the objective: value = goal x numerator / denominator."""

    name: ObjectiveName
    goal: Goal
    unit: str
    scale: float
    """From exact values to `unit`."""
    per_sequence: bool = False
    per_gpu: bool = False
    rate: Fraction | None = None
    """Sum over all devices in use of what each takes in a second or an hour, where pools have figures of their own."""

    def weight(self, strategy: Strategy) -> Fraction:
        """Of one row: objective per unit of its goal."""
        if self.goal != "time":
            return Fraction(1)
        gpus = self.rate if self.rate is not None else int(strategy.world_size) if self.per_gpu else 1
        batch = int(strategy.global_batch_size) if self.per_sequence else 1
        return Fraction(gpus) / (int(strategy.virtual_pipeline_stages) * batch)

    def weights(self, strategy: Strategy) -> FloatArray:
        """Of many rows, to be used for ordering and pruning with a margin."""
        one: Any = np.ones(len(strategy))
        if self.goal != "time":
            return np.asarray(one, dtype=float)
        gpus = float(self.rate) if self.rate is not None else strategy.world_size if self.per_gpu else one
        batch = strategy.global_batch_size if self.per_sequence else one
        return np.asarray(gpus / (strategy.virtual_pipeline_stages * batch), dtype=float)

    def value(self, strategy: Strategy, cost: Cost) -> Fraction:
        """Exact value of a layout of a row."""
        if self.name == "gpus":
            return Fraction(int(strategy.world_size))
        return self.weight(strategy) * (cost.memory if self.goal == "memory" else cost.time)


def objective(name: ObjectiveName, problem: Problem) -> Objective:
    """An objective for a problem; per sequence where the global batch may vary."""
    batch, length = problem.job.training.batch_range, problem.job.training.sequence_length
    ranged = batch.min != batch.max
    each = "sequence" if ranged else "step"
    if name == "memory":
        return Objective(name=name, goal="memory", unit="bytes", scale=MEMORY_UNIT)
    if name == "gpus":
        return Objective(name=name, goal="feasible", unit="gpus", scale=1.0)
    if name == "throughput":
        return Objective(name=name, goal="time", unit=f"seconds per {each}", scale=TICK_SECONDS, per_sequence=ranged)
    if name == "energy":
        whole = _paid(name, problem, f"joules per {each}", lambda pool: pool.device.tdp_watts)
        return replace(whole, per_sequence=ranged)
    hourly = _paid(name, problem, f"price per {each}", lambda pool: pool.price_per_gpu_hour)
    if name == "cost_per_token":
        return replace(hourly, unit="price per token", scale=hourly.scale / 3600 / length, per_sequence=True)
    return replace(hourly, scale=hourly.scale / 3600, per_sequence=ranged)


def _paid(name: ObjectiveName, problem: Problem, unit: str, of_device: Callable[[NodePool], float | None]) -> Objective:
    """What every device in use takes for as long as the step lasts, busy or waiting."""
    if problem.arrangement is not None:
        rate = problem.arrangement.total(of_device, problem.job.cluster)
        assert rate is not None, "Problem refuses what needs a figure that is missing"
        return Objective(name=name, goal="time", unit=unit, scale=TICK_SECONDS, rate=Fraction(rate))
    figure = of_device(problem.job.pool)
    assert figure is not None, "Problem refuses what needs a figure that is missing"
    return Objective(name=name, goal="time", unit=unit, scale=TICK_SECONDS * figure, per_gpu=True)


def objectives(problem: Problem) -> tuple[Objective, ...]:
    """The list of a problem; what the others leave open is decided by throughput.

    So is what a number of devices leaves open at the end of a list, which may then name throughput twice.
    """
    names = tuple(dict.fromkeys(problem.objectives))
    if "throughput" not in names or names[-1] == "gpus":
        names = (*names, "throughput")
    return tuple(objective(name, problem) for name in names)


def limited(name: str, problem: Problem) -> Objective:
    """The quantity that a limit on the step holds, less being better: seconds, a price, joules, seconds per token."""
    second = Objective(name="throughput", goal="time", unit="seconds", scale=TICK_SECONDS)
    length = problem.job.training.sequence_length
    if name == "max_step_seconds":
        return second
    if name == "max_cost_per_step":
        return replace(objective("cost", problem), per_sequence=False)
    if name == "max_cost_per_token":
        return objective("cost_per_token", problem)
    if name == "max_energy_per_step":
        return replace(objective("energy", problem), per_sequence=False)
    each = replace(second, per_sequence=True, unit="seconds per token", scale=TICK_SECONDS / length)
    return replace(each, per_gpu=name == "min_tokens_per_second_per_gpu")


TIMED: Final = (
    "max_cost_per_step",
    "max_cost_per_token",
    "max_energy_per_step",
    "min_tokens_per_second",
    "min_tokens_per_second_per_gpu",
)
"""Limits on quantities that are the step times constants of a row."""


def timed_limits(problem: Problem) -> tuple[tuple[Objective, Fraction], ...]:
    """Those of the limits that a problem has, each with the most that is allowed."""
    found = []
    for name in TIMED:
        value = getattr(problem.limits, name)
        if value is not None:
            goal = limited(name, problem)
            most = 1 / value if name.startswith("min_") else value
            found.append((goal, most))
    return tuple((goal, Fraction(most / goal.scale)) for goal, most in found if goal.scale > 0)
