"""Two relaxations of a row, each blind to half of the question: its time without memory, its memory without time.

Both are sums over coefficients on the grid, written from the definition of the step and of the peak.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from cost_models.arrays import FloatArray, IntArray
from solver.audit.grid import MemoryGrid, TimeGrid


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Rows of equal stages: what both relaxations know about their layouts."""

    counts: FloatArray  # (J,) layers of the model by kind
    even: Any  # (n,) bool: every stage holds L / S layers
    offloads: Any  # (n,) bool
    virtual: int
    steps: IntArray  # (n,)
    modes: tuple[int, ...]
    """Recompute modes on offer."""

    def held(self, stages: int) -> FloatArray:
        """Layers that every stage holds at least. (n,)"""
        result: FloatArray = np.where(self.even, self.counts.sum() // stages, 1.0)
        return result


def time_floor(time: TimeGrid, setting: Setting) -> FloatArray:
    """Least v times the step, whatever the layout and however much memory it takes. (n,) [ticks]

    The sum of the stages holds every layer in its fastest mode; the slowest stage is no faster than the mean, nor than
    any stage with the layers it must hold; the longest tail is no shorter than the mean.
    """
    stages = time.stage.shape[1]
    fastest_of_stage = time.layer[..., list(setting.modes)].min(axis=3)
    fastest = fastest_of_stage.min(axis=1)
    total = time.stage.sum(axis=1) + fastest @ setting.counts
    slowest = np.maximum(_shared(time, fastest_of_stage, setting.counts), total / stages)
    slowest = np.maximum(slowest, time.stage.max(axis=1) + setting.held(stages) * fastest.min(axis=1))
    offload = np.where(setting.offloads[:, None, None], np.minimum(time.tail_offload, 0.0), 0.0)
    tail = (time.tail_stage.sum(axis=1) + (time.tail_layer + offload).min(axis=1) @ setting.counts) / stages
    slope = setting.virtual * setting.steps - 1
    result: FloatArray = slope * slowest + total + setting.virtual * (tail + time.fixed)
    return result


def _shared(time: TimeGrid, fastest: FloatArray, counts: FloatArray) -> FloatArray:
    r"""Least time of the slowest stage when stages differ: each takes layers in proportion to its speed. (n,) [ticks]

    With work u_j of a layer of kind j, a stage of U_s work takes t_s >= c_s + p_s U_s for p_s the least time of a unit:
    the U_s sum up to U, so :math:`\max t \ge (U + \sum c_s / p_s) / \sum 1 / p_s`. A margin covers its divisions.
    """
    work = fastest.mean(axis=1)
    pace = (fastest / np.maximum(work, 1.0)[:, None]).min(axis=2)
    if (pace <= 0).any():
        return np.zeros(len(work))
    units = np.maximum(work, 1.0) @ counts
    result: FloatArray = (units + (time.stage / pace).sum(axis=1)) / (1 / pace).sum(axis=1) * (1 - 1e-9)
    return result


def memory_floor(memory: MemoryGrid, setting: Setting) -> FloatArray:
    """Least peak of the fullest rank: every layer in its leanest mode, offloaded if that is allowed. (n,) [KiB]

    The stages together hold every layer in the stage that holds fewest micro-batches; each holds the layers it must.
    """
    stages, longest = memory.constant.shape[1], setting.counts.sum() - memory.constant.shape[1] + 1
    saving = np.where(setting.offloads[:, None, None], memory.saving, 0.0)
    lean = memory.layer[..., list(setting.modes)].min(axis=4) - saving[:, :, None, :]
    work = memory.working[..., list(setting.modes)].min(axis=3)
    own = memory.constant + work
    mean = (own.sum(axis=1) + lean.min(axis=1) @ setting.counts) / stages
    least = lean.min(axis=3)
    held = setting.held(stages)[:, None, None]
    most = np.where(setting.even[:, None, None], held, longest)
    single = own + np.where(least >= 0, held, most) * least
    result: FloatArray = np.maximum(mean.max(axis=1), single.max(axis=(1, 2)))
    return result


def host_floor(memory: MemoryGrid, ranks: IntArray) -> FloatArray:
    """Least host memory of a node that hosts so many ranks: nothing offloaded. (n,) [KiB]"""
    result: FloatArray = memory.host_stage.min(axis=1) * ranks
    return result
