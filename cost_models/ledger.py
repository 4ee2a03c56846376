"""The named ledger of one configuration: what every byte and every second is for."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

from cost_models.calibration import Calibration
from cost_models.job import Job
from cost_models.specs.configuration import Configuration


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """Bytes of one rank of one stage, by instant and term; the terms of an instant sum to what is allocated then."""

    stage: int
    instants: Mapping[str, Mapping[str, float]]
    host_bytes: float
    """Host memory of one rank."""

    def allocated(self, instant: str) -> float:
        """Bytes allocated at an instant, summed in the order of the terms."""
        return sum(self.instants[instant].values())


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLedger:
    """Memory of one configuration."""

    stages: tuple[StageMemory, ...]
    phase_of: Mapping[str, str]
    """Instant -> phase: load, first_step, step, eval, save."""
    context_bytes: float
    communicator_bytes: float
    allocated_quantile: float
    """Factor from the terms to the asked quantile of allocated bytes."""
    allocated_median: float = 1.0
    """The same to their median: 1 but where a device's own runs allocated more or less than the terms."""
    allocated_lower: float | None = None
    """The same to the quantile as far below the median; None: as far in the logarithm as the upper one."""
    fragmentation_median: float
    fragmentation_quantile: float
    usable_bytes: float
    host_usable_bytes: float
    """Of one node."""
    host_node_bytes: float
    """Most host memory that any node needs."""
    of_stages: tuple[int, ...] = ()
    """Stages of the pool that the figures above are of; empty where all stages live in one."""
    other_pools: tuple["MemoryLedger", ...] = ()
    """Ledgers of the other pools in use, which are less full."""

    @property
    def binding(self) -> tuple[int, str]:
        """The stage and instant of the peak."""
        return max(
            ((stage.stage, instant) for stage in self._stages for instant in stage.instants),
            key=lambda at: self.stages[at[0]].allocated(at[1]),
        )

    @property
    def _stages(self) -> tuple[StageMemory, ...]:
        return tuple(self.stages[s] for s in self.of_stages) or self.stages

    @property
    def fullness(self) -> float:
        """Share of the device or of a node's host that is needed, whichever is larger."""
        host = self.host_node_bytes / self.host_usable_bytes if self.host_usable_bytes > 0 else self.host_node_bytes
        device = self.conservative_bytes / self.usable_bytes if self.usable_bytes > 0 else math.inf
        return max(device, host)

    @property
    def allocated_bytes(self) -> float:
        """The peak, as its terms sum to."""
        stage, instant = self.binding
        return self.stages[stage].allocated(instant)

    @property
    def device_bytes(self) -> float:
        """What nvidia-smi would show, median. [bytes]"""
        median = self.allocated_median * self.fragmentation_median
        return self.allocated_bytes * median + self.context_bytes + self.communicator_bytes

    @property
    def conservative_bytes(self) -> float:
        """What the device holds at the asked risk. [bytes]"""
        margin = self.allocated_quantile * self.fragmentation_quantile
        return self.allocated_bytes * margin + self.context_bytes + self.communicator_bytes

    def oom_probability(self, oom_risk: float) -> float:
        r"""Probability that the device or its host runs out of memory.

        .. math:: p = 1 - \Phi\!\left(z_r \ln\frac{U - F}{A b m} \Big/ \ln\frac{a q}{b m}\right),
                  \quad z_r = \Phi^{-1}(1 - r)

        with usable memory U, fixed F (context, communicators), allocation A, median factors b of it and m of
        fragmentation, and the factors
        a, q at the risk r that this ledger was made with: both errors are log-normal and taken as fully correlated.
        """
        others = max((pool.oom_probability(oom_risk) for pool in self.other_pools), default=0.0)
        return max(others, self._own_oom_probability(oom_risk))

    def _own_oom_probability(self, oom_risk: float) -> float:
        if self.host_node_bytes > self.host_usable_bytes:
            return 1.0
        room = self.usable_bytes - self.context_bytes - self.communicator_bytes
        middle = self.allocated_median * self.fragmentation_median
        median = self.allocated_bytes * middle
        spread = math.log(self.allocated_quantile * self.fragmentation_quantile / middle)
        if room <= 0 or spread <= 0 or median <= 0:
            return float(room < median)
        normal = NormalDist()
        return 1.0 - normal.cdf(normal.inv_cdf(1.0 - oom_risk) * math.log(room / median) / spread)

    @property
    def fits(self) -> bool:
        """The chance constraint of the solve, from unrounded bytes, device and host."""
        own = self.conservative_bytes <= self.usable_bytes and self.host_node_bytes <= self.host_usable_bytes
        return own and all(pool.fits for pool in self.other_pools)


COMMUNICATION: Final = ("tensor_parallel", "context_parallel", "expert_parallel", "point_to_point", "data_parallel")
"""Terms of the step that are communication."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLedger:
    """Seconds of one optimizer step, exposed, by term; they sum to `step_seconds`."""

    step_seconds: float
    exposed: Mapping[str, float]
    """compute, attention, elementwise, launch_floor, recompute, tensor_parallel, context_parallel, expert_parallel,
    pipeline_bubble, point_to_point, data_parallel, offload, optimizer, fixed."""
    hidden: Mapping[str, float]
    """Communication and copies covered by compute."""
    stage_seconds: tuple[float, ...]
    """Of one micro-batch, forward and backward."""
    model_flops: float
    """Of one step, whole cluster: no recompute counted."""
    peak_flops: float
    """What the devices in use could do, in the type that they multiply this precision in. [FLOP/s]"""

    @property
    def communication_fraction(self) -> float:
        """Share of the step that is exposed communication."""
        return sum(self.exposed.get(term, 0.0) for term in COMMUNICATION) / self.step_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Both ledgers."""

    memory: MemoryLedger
    time: TimeLedger


def estimate(job: Job, configuration: Configuration, calibration: Calibration, *, oom_risk: float = 0.01) -> Estimate:
    """Price exactly this configuration, with names.

    Raises:
        MissingCalibration: a term has no constant for this device or framework.
    """
    from cost_models.memory import memory_ledger  # noqa: PLC0415  the formulas import the types above
    from cost_models.time import time_ledger  # noqa: PLC0415

    return Estimate(
        memory=memory_ledger(job, configuration, calibration, oom_risk=oom_risk),
        time=time_ledger(job, configuration, calibration),
    )
