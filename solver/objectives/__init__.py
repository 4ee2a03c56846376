"""Objectives: what a configuration is worth, exactly. Values are fractions of integers, compared without rounding.

Every objective is "less is better". Time-like ones weigh v times the step of a row by row constants, so the inner
model stays linear.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from cost_models.arrays import FloatArray
from cost_models.strategy import Strategy
from solver.inner import Goal
from solver.layout import Cost
from solver.problem import ObjectiveName, Problem
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
    """Price of an hour of all devices in use, where pools have prices of their own."""

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
    batch = problem.job.training.batch_range
    ranged = batch.min != batch.max
    if name == "memory":
        return Objective(name=name, goal="memory", unit="bytes", scale=MEMORY_UNIT)
    if name == "gpus":
        return Objective(name=name, goal="feasible", unit="gpus", scale=1.0)
    if name == "throughput":
        unit = "seconds per sequence" if ranged else "seconds per step"
        return Objective(name=name, goal="time", unit=unit, scale=TICK_SECONDS, per_sequence=ranged)
    unit = "price per sequence" if ranged else "price per step"
    if problem.arrangement is not None:
        rate = problem.arrangement.price_per_hour(problem.job.cluster)
        assert rate is not None, "Problem refuses cost without a price"
        return Objective(
            name=name, goal="time", unit=unit, scale=TICK_SECONDS / 3600, per_sequence=ranged, rate=Fraction(rate)
        )
    price = problem.job.pool.price_per_gpu_hour
    assert price is not None, "Problem refuses cost without a price"
    return Objective(
        name=name, goal="time", unit=unit, scale=TICK_SECONDS * price / 3600, per_sequence=ranged, per_gpu=True
    )


def objectives(problem: Problem) -> tuple[Objective, ...]:
    """The list of a problem; what memory, gpus or cost leave open is decided by throughput."""
    names = problem.objectives if "throughput" in problem.objectives else (*problem.objectives, "throughput")
    return tuple(objective(name, problem) for name in dict.fromkeys(names))
