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
    fastest = time.layer[..., list(setting.modes)].min(axis=(1, 3))
    total = time.stage.sum(axis=1) + fastest @ setting.counts
    slowest = np.maximum(total / stages, time.stage.max(axis=1) + setting.held(stages) * fastest.min(axis=1))
    offload = np.where(setting.offloads[:, None, None], np.minimum(time.tail_offload, 0.0), 0.0)
    tail = (time.tail_stage.sum(axis=1) + (time.tail_layer + offload).min(axis=1) @ setting.counts) / stages
    slope = setting.virtual * setting.steps - 1
    result: FloatArray = slope * slowest + total + setting.virtual * (tail + time.fixed)
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


def host_floor(memory: MemoryGrid, ranks: IntArray, per_node: int) -> FloatArray:
    """Least host memory of the fullest node: nothing offloaded. (n,) [KiB]"""
    result: FloatArray = memory.host_stage.min(axis=1) * np.minimum(ranks, per_node)
    return result
