"""Caps: what side constraints and earlier objectives of a list leave."""

from dataclasses import dataclass, fields, replace
from fractions import Fraction

import numpy as np

from cost_models.arrays import FloatArray
from cost_models.specs.choices import RECOMPUTES
from cost_models.strategy import Strategy
from cost_models.table import MemoryTable
from solver.objectives import Objective, timed_limits
from solver.problem import Problem
from solver.rounding import MEMORY_UNIT, ticks_down

UNLIMITED_BYTES = 2.0**46
"""More than any rank or node; small enough for exact integers, even times the layers and micro-batches of a stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """Upper limits on objectives, exact, and on the step."""

    timed: tuple[tuple[Objective, Fraction], ...] = ()
    step_ticks: int | None = None
    max_memory_bytes: float | None = None
    max_host_memory_bytes: float | None = None
    device_memory: bool = True
    """False asks what would be chosen if device memory were unlimited."""
    host_memory: bool = True
    shared: bool = False
    """Whether communication is limited: its share needs times."""
    modes: tuple[str, ...] = RECOMPUTES
    """Recompute modes that a layer may have."""

    def bounded(self, memory: MemoryTable) -> MemoryTable:
        """Memory coefficients under these caps."""
        fields_ = {f.name: getattr(memory, f.name) for f in fields(memory)}
        if not self.device_memory:
            fields_["capacity"] = np.full_like(memory.capacity, UNLIMITED_BYTES)
        if not self.host_memory:
            fields_["host_capacity"] = np.full_like(memory.host_capacity, UNLIMITED_BYTES)
        if self.max_memory_bytes is not None:
            fields_["capacity"] = np.minimum(fields_["capacity"], self.max_memory_bytes)
        if self.max_host_memory_bytes is not None:
            fields_["host_capacity"] = np.minimum(fields_["host_capacity"], self.max_host_memory_bytes)
            # Loading comes before offloading and fits or not whatever the layout; where it does not, nothing else may.
            over = np.where(memory.host_loading > self.max_host_memory_bytes, memory.host_loading, 0.0)
            fields_["host_constant"] = np.maximum(fields_["host_constant"], over[:, None])
        for mode in set(RECOMPUTES) - set(self.modes):
            # One layer of a mode that is not wanted exceeds any capacity: bounds, models and checks all obey alike.
            activation = fields_["activation"].copy()
            activation[..., RECOMPUTES.index(mode)] = 2 * fields_["capacity"][:, None]
            fields_["activation"] = activation
        return MemoryTable(**fields_)

    @property
    def on_time(self) -> bool:
        """Whether the step is limited at all."""
        return bool(self.timed) or self.step_ticks is not None or self.shared

    def max_times(self, strategy: Strategy) -> FloatArray:
        """Most that v times the step of each row may be. (n,) [ticks]"""
        v = np.asarray(strategy.virtual_pipeline_stages, dtype=float)
        limit = np.full(len(strategy), np.inf)
        if self.step_ticks is not None:
            limit = np.minimum(limit, self.step_ticks * v)
        for goal, value in self.timed:
            limit = np.minimum(limit, _whole_ticks(goal, value, strategy))
        return limit

    def after(self, goal: Objective, value: Fraction, tolerance: float = 0.0) -> "Caps":
        """With an objective held at its value, or within a relative tolerance of it."""
        held = value * (1 + Fraction(tolerance))
        if goal.goal == "time":
            return replace(self, timed=(*self.timed, (goal, held)))
        if goal.goal == "memory":
            most = float(held) * MEMORY_UNIT
            return replace(
                self, max_memory_bytes=most if self.max_memory_bytes is None else min(most, self.max_memory_bytes)
            )
        return self


def _whole_ticks(goal: Objective, most: Fraction, strategy: Strategy) -> FloatArray:
    """Most v times the step of each row at which a timed objective is within `most`: once per weight. (n,)"""
    v = np.atleast_1d(np.asarray(strategy.virtual_pipeline_stages)).tolist()
    gpus = np.atleast_1d(np.asarray(strategy.world_size)).tolist() if goal.per_gpu else [goal.rate or 1] * len(v)
    batch = np.atleast_1d(np.asarray(strategy.global_batch_size)).tolist() if goal.per_sequence else [1] * len(v)
    keys = list(zip(v, gpus, batch, strict=True))
    ticks = {key: float(most * key[0] * key[2] // Fraction(key[1])) for key in dict.fromkeys(keys)}
    return np.array([ticks[key] for key in keys])


def caps(problem: Problem) -> Caps:
    """The side constraints of a problem."""
    limits = problem.limits
    step = None if limits.max_step_seconds is None else ticks_down(limits.max_step_seconds)
    modes = tuple(str(mode) for mode in problem.resolved_domains["recompute"] or ())
    return Caps(
        timed=timed_limits(problem),
        step_ticks=step,
        max_memory_bytes=limits.max_memory_bytes,
        max_host_memory_bytes=limits.max_host_memory_bytes,
        shared=limits.max_communication_fraction is not None,
        modes=modes,
    )
