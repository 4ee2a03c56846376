"""One row as the exact search reads it, and what a layout of it costs."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cost_models.arrays import FloatArray, IntArray
from solver.audit.grid import MemoryGrid, TimeGrid
from solver.problem import PARTS

ONE_MODE, SAME_COUNT, FREE = 0, 1, 2
"""What a back end can say about recomputation: all layers alike; the same number in every stage; anything."""
ALL = 0
"""What it can say about offload, beside the same number and anything: every layer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """Which layouts a row can have."""

    even: bool
    mixed: bool
    recompute: int
    offload: int
    offloads: bool
    needs_full: bool
    given: tuple[int, ...] | None = None
    """Layers of each stage, where they are given and not equal."""
    modes: tuple[bool, bool, bool] = (True, True, True)
    """Recompute modes on offer."""


@dataclass(frozen=True, slots=True)
class Part:
    """One stage of a layout: its first `full` layers recompute, `selective` partly; the first `offloaded` offload."""

    layers: int
    full: int
    selective: int
    offloaded: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A limit on the share of communication: how much of each time is communication, and of the step may be."""

    time: TimeGrid
    most: int
    """Of PARTS."""
    rounding: int
    """Ticks that rounding added to v times the step."""


@dataclass(frozen=True)
class AuditRow:
    """Coefficients of one row: its grids hold exactly one."""

    time: TimeGrid
    memory: MemoryGrid
    steps: int
    virtual: int
    order: tuple[int, ...]
    can: Abilities
    patterns: IntArray
    """Ranks of each stage on every kind of node. (P, S)"""
    host_rooms: FloatArray
    """Host memory of each kind of node. (P,) [KiB]"""
    share: Share | None = None

    @property
    def stages(self) -> int:
        """Of the pipeline."""
        return int(self.time.stage.shape[1])

    @property
    def slope(self) -> int:
        """Weight of the slowest stage in v times the step."""
        return self.virtual * self.steps - 1

    @cached_property
    def before(self) -> FloatArray:
        """Layers by kind before each position. (L + 1, J)"""
        one = np.eye(self.time.layer.shape[2])[list(self.order)]
        return np.concatenate([np.zeros((1, one.shape[1])), np.cumsum(one, axis=0)])

    def hosted(self, layout: tuple[Part, ...]) -> bool:
        """Whether the nodes hold what a layout offloads."""
        start, hosts = 0, []
        for s, part in enumerate(layout):
            gone = self.before[start + part.offloaded] - self.before[start]
            hosts.append(self.memory.host_stage[0, s] + gone @ self.memory.host_layer[0, s])
            start += part.layers
        return bool((self.patterns @ np.array(hosts) <= self.host_rooms).all())

    def shares(self, layout: tuple[Part, ...]) -> bool:
        """Whether a layout keeps the limit on communication: with any stage as the slowest that rounding makes it."""
        if self.share is None:
            return True
        (times, tails), (spent, last) = self._seconds(self.time, layout), self._seconds(self.share.time, layout)
        layers = len(self.order)
        slowest = max(c for c, t in zip(spent, times, strict=True) if t >= max(times) - layers - 1)
        longest = max(c for c, t in zip(last, tails, strict=True) if t >= max(tails) - 2 * layers - 1)
        part = self.virtual * int(self.steps * slowest + longest + self.share.time.fixed[0])
        return part * PARTS <= self.share.most * (self.cost(layout)[0] - self.share.rounding)

    def _seconds(self, time: TimeGrid, layout: tuple[Part, ...]) -> tuple[list[float], list[float]]:
        """Micro-batch and tail of every stage."""
        start, works, tails = 0, [], []
        for s, part in enumerate(layout):
            kinds = self.order[start : start + part.layers]
            modes = [2] * part.full + [1] * part.selective + [0] * (part.layers - part.full - part.selective)
            layers = sum(time.layer[0, s, j, r] for j, r in zip(kinds, modes, strict=True))
            works.append(float(time.stage[0, s] + layers))
            moved = sum(time.tail_offload[0, s, j] for j in kinds[: part.offloaded])
            tails.append(float(time.tail_stage[0, s] + sum(time.tail_layer[0, s, j] for j in kinds) + moved))
            start += part.layers
        return works, tails

    def cost(self, layout: tuple[Part, ...]) -> tuple[int, int]:
        """v times the step [ticks] and the peak [KiB] of a layout."""
        mem, time, start = self.memory, self.time, 0
        times, tails, peaks = [], [], []
        for s, part in enumerate(layout):
            kinds = self.order[start : start + part.layers]
            modes = [2] * part.full + [1] * part.selective + [0] * (part.layers - part.full - part.selective)
            gone = kinds[: part.offloaded]
            times.append(time.stage[0, s] + sum(time.layer[0, s, j, r] for j, r in zip(kinds, modes, strict=True)))
            tails.append(
                time.tail_stage[0, s]
                + sum(time.tail_layer[0, s, j] for j in kinds)
                + sum(time.tail_offload[0, s, j] for j in gone)
            )
            saved = sum(mem.saving[0, s, j] for j in gone)
            for i, most in enumerate(mem.most):
                used = mem.constant[0, s, i] + sum(mem.layer[0, s, i, j, r] for j, r in zip(kinds, modes, strict=True))
                peaks.append(used + mem.working[0, s, i, modes[0] if most else modes[-1]] - saved)
            start += part.layers
        step = self.slope * max(times) + sum(times) + self.virtual * (max(tails) + time.fixed[0])
        return int(step), int(max(peaks))
