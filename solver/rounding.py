"""Rounding lives here and nowhere else: float coefficients become integers that never flatter a configuration.

Time in ticks of 100 ns, memory in KiB. Costs are rounded up, savings and capacities down, activations after their
multiplication by the micro-batches in flight. A sum of ceilings is at least the ceiling of the sum, so what fits in
integers fits in bytes, and the integer step time is at least the real one, by at most one tick per coefficient used.
Integers are held in float64 arrays, where they are exact below 2^53.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, TypeVar

import numpy as np

from cost_models.arrays import FloatArray, IntArray, taken
from cost_models.errors import BrokenRule
from cost_models.schedule import BOTH, FIRST, LAST, MIDDLE, in_flight
from cost_models.table import MemoryTable, TimeTable

TICK_SECONDS: Final = 1e-7
MEMORY_UNIT: Final = 1024
EXACT: Final = 2.0**53
"""Largest magnitude up to which float64 holds every integer."""


def ticks_up(seconds: FloatArray) -> FloatArray:
    """Seconds as ticks, rounded up."""
    return np.ceil(seconds / TICK_SECONDS)


def ticks_down(seconds: float) -> int:
    """A limit in seconds as ticks, rounded down."""
    return int(np.floor(seconds / TICK_SECONDS))


def memory_up(size: FloatArray) -> FloatArray:
    """Bytes as KiB, rounded up."""
    return np.ceil(size / MEMORY_UNIT)


def memory_down(size: FloatArray) -> FloatArray:
    """Bytes saved or available as KiB, rounded down."""
    return np.floor(size / MEMORY_UNIT)


def goal_limit(values: FloatArray) -> FloatArray:
    """Limits on a row's integer goal, rounded up so that they never exclude an equal value."""
    return np.ceil(values)


def above(values: FloatArray) -> FloatArray:
    """The least whole goals above."""
    return np.floor(values) + 1


def seconds(ticks: float) -> float:
    """Ticks as seconds."""
    return float(ticks) * TICK_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerTime:
    """`TimeTable` in ticks."""

    layer: FloatArray  # (n, J, R)
    stage: FloatArray  # (n, C)
    layer_tail: FloatArray  # (n, J)
    layer_offload: FloatArray  # (n, J)
    stage_tail: FloatArray  # (n, C)
    fixed: FloatArray  # (n,)

    def take(self, index: Any) -> "IntegerTime":
        """Some of the rows."""
        return IntegerTime(**{f.name: taken(getattr(self, f.name), index) for f in fields(self)})


def integer_time(time: TimeTable) -> IntegerTime:
    """Every coefficient of time rounded up: each is a cost (an offload that saves time is a smaller saving)."""
    return IntegerTime(
        layer=ticks_up(time.layer),
        stage=ticks_up(time.stage),
        layer_tail=ticks_up(time.layer_tail),
        layer_offload=ticks_up(time.layer_offload),
        stage_tail=ticks_up(time.stage_tail),
        fixed=ticks_up(time.fixed),
    )


def stage_classes(stages: int) -> IntArray:
    """Class index of each stage."""
    if stages == 1:
        return np.array([BOTH])
    return np.array([FIRST, *[MIDDLE] * (stages - 2), LAST])


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """Memory of rows that share their number of stages, by stage, in KiB.

    P is 1 where all stages live in one pool of devices, else the number of stages.
    """

    constant: FloatArray  # (n, S, I)
    layer: FloatArray  # (n, S, I, J, R) of one layer with the micro-batches in flight there
    working: FloatArray  # (n, S, I, R)
    offload_saving: FloatArray  # (n, P, J)
    capacity: FloatArray  # (n, P)
    host_constant: FloatArray  # (n, S)
    host_layer: FloatArray  # (n, P, J)
    host_capacity: FloatArray  # (n, P) of the nodes that hold the stage
    selector: FloatArray  # (I,)


def stage_memory(
    memory: MemoryTable,
    *,
    stages: int,
    virtual: IntArray,
    micro_batches: IntArray,
    layers: int | None = None,
    at: IntArray | None = None,
) -> StageMemory:
    """Integer memory coefficients of each stage of rows with `stages` stages, or of some of the stages.

    `layers` of the model, where chunks of interleaved stages may differ.
    """
    stage = np.arange(stages) if at is None else at
    classes = stage_classes(stages)[stage]
    flight = np.asarray(
        in_flight(stage[None, :], stages, virtual[:, None], micro_batches[:, None], layers), dtype=float
    )
    held = flight[:, :, None] - memory.released / virtual[:, None, None]
    held = np.maximum(held, 0.0) * memory.holds_activations
    stage_activation = memory.stage_activation[:, classes][:, :, None]
    layer = (
        np.moveaxis(memory.layer, 1, 2)[:, None, :, :, None] + held[..., None, None] * memory.activation[:, None, None]
    )
    return StageMemory(
        constant=memory_up(memory.constant[:, classes] + held * stage_activation),
        layer=memory_up(layer),
        working=memory_up(memory.working[:, classes]),
        offload_saving=memory_down(memory.offload_saving)[:, None],
        capacity=memory_down(memory.capacity)[:, None],
        host_constant=memory_up(memory.host_constant[:, classes]),
        host_layer=memory_up(memory.host_layer)[:, None],
        host_capacity=memory_down(memory.host_capacity)[:, None],
        selector=memory.selector,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTimes:
    """Time of rows that share their number of stages, by stage, in ticks; P as in `StageMemory`."""

    layer: FloatArray  # (n, P, J, R)
    layer_tail: FloatArray  # (n, P, J)
    layer_offload: FloatArray  # (n, P, J)
    stage: FloatArray  # (n, S)
    stage_tail: FloatArray  # (n, S)
    fixed: FloatArray  # (n,)


def stage_times(time: IntegerTime, stages: int) -> StageTimes:
    """Time coefficients of each stage of rows with `stages` stages."""
    classes = stage_classes(stages)
    return StageTimes(
        layer=time.layer[:, None],
        layer_tail=time.layer_tail[:, None],
        layer_offload=time.layer_offload[:, None],
        stage=time.stage[:, classes],
        stage_tail=time.stage_tail[:, classes],
        fixed=time.fixed,
    )


Held = TypeVar("Held", StageMemory, StageTimes)


def placed(parts: Sequence[Held], of_stage: Sequence[int]) -> Held:
    """Coefficients of stages in several pools: those of stage s come from part `of_stage[s]`."""

    def column(name: str) -> FloatArray:
        arrays: list[FloatArray] = [getattr(part, name) for part in parts]
        if name == "selector":
            return arrays[0]
        if name == "fixed":
            longest: FloatArray = np.maximum.reduce(arrays)
            return longest
        chosen = [arrays[k][:, s if arrays[k].shape[1] > 1 else 0] for s, k in enumerate(of_stage)]
        return np.stack(chosen, axis=1)

    return replace(parts[0], **{f.name: column(f.name) for f in fields(parts[0])})


def rounding_ticks(*, stages: int, virtual: int, micro_batches: int, layers: int) -> float:
    """Most ticks by which the integer step exceeds the real one: one per coefficient and use.

    A stage of l layers rounds l + 1 coefficients of its micro-batch time, at most 2 l + 1 of its tail; the step adds
    one constant: (m - 1/v)(L + 1) + (L + S)/v + 2 L + 1 + 1.
    """
    return (micro_batches - 1 / virtual) * (layers + 1) + (layers + stages) / virtual + 2 * layers + 2


def check_exact(memory: StageMemory, time: IntegerTime | StageTimes, *, layers: int, steps: IntArray) -> None:
    """No sum of the integer models leaves the range where float64 holds every integer.

    `steps`: micro-batches times virtual stages, what a stage's time is multiplied with at most.

    Raises:
        BrokenRule: sizes or times beyond that: a step of decades, exabytes on a device.
    """
    sums = {
        "memory": _most(memory.constant) + layers * _most(memory.layer) + _most(memory.working),
        "host memory": _most(memory.host_constant) + layers * _most(memory.host_layer),
        "time": _most(steps) * (_most(time.stage) + layers * _most(time.layer))
        + layers * (_most(time.layer_tail) + _most(time.layer_offload))
        + _most(time.stage_tail)
        + _most(time.fixed),
    }
    for name, largest in sums.items():
        if not largest < EXACT:
            raise BrokenRule(f"{name} adds up to {largest:.3g} units but whole numbers are exact below {EXACT:.3g}")


def _most(values: FloatArray | IntArray) -> float:
    return float(np.abs(values).max(initial=0))
