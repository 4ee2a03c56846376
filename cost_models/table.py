"""The keystone: coefficients of memory and time, written once by the formulas, read by the ledger and by the solver.

Axes: n candidates; C stage classes (`schedule.STAGE_CLASSES`); I memory instants (`memory.instants.INSTANTS`);
J layer kinds (`ModelSpec.layer_kinds`); R recompute modes (`RECOMPUTES`: none, selective, full).
Everything a stage costs is linear in its layer counts, given which recompute modes occur in it.
"""

from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np

from cost_models.arrays import FloatArray, IntArray, taken
from cost_models.calibration import Calibration
from cost_models.job import Job
from cost_models.strategy import Strategy


class _Rows:
    def take(self, index: Any) -> Self:
        """The rows at `index`; arrays without a candidate axis (listed in SHARED) are kept."""
        shared: frozenset[str] = getattr(self, "SHARED", frozenset())
        return type(self)(
            **{
                f.name: getattr(self, f.name) if f.name in shared else taken(getattr(self, f.name), index)
                for f in fields(self)  # type: ignore[arg-type]
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTable(_Rows):
    """Bytes of one rank. Allocated bytes of stage s at instant i, with layer counts by kind j and mode r:

    constant[class, i] + sum_j layers_j * layer[j, i]
      + flight_i(s) * (stage_activation[class] + sum_jr layers_jr * activation[j, r])
      + working[class, i, mode_i] - sum_j offloaded_j * offload_saving[j]

    flight_i(s) = holds_activations[i] * (in_flight(s) - released[i] / v), never below 0.
    mode_i = the least recomputing mode present when selector[i] is 0 (the last layer's), the most recomputing one
    present when it is 1 (the first layer's).
    """

    SHARED = frozenset({"holds_activations", "released", "selector"})

    constant: FloatArray  # (n, C, I)
    layer: FloatArray  # (n, J, I)
    stage_activation: FloatArray  # (n, C) of one micro-batch
    activation: FloatArray  # (n, J, R) of one layer and micro-batch
    working: FloatArray  # (n, C, I, R)
    offload_saving: FloatArray  # (n, J) of one layer whose optimizer states live on the host
    host_layer: FloatArray  # (n, J) host bytes of one rank per offloaded layer
    host_constant: FloatArray  # (n, C) host bytes of one rank
    capacity: FloatArray  # (n,) most bytes a rank may allocate, after context, communicators and the risk margin
    margin: FloatArray  # (n,) usable bytes that one allocated byte takes at the asked risk
    host_capacity: FloatArray  # (n,) host bytes of one node that the job may use
    host_loading: FloatArray  # (n,) host bytes of the fullest node while weights are loaded
    holds_activations: FloatArray  # (I,) 0 or 1
    released: FloatArray  # (I,) chunks of the oldest micro-batch already freed: 0 or 1
    selector: FloatArray  # (I,) 0 or 1

    def at_instants(self, index: IntArray) -> Self:
        """These coefficients at some of the instants."""
        return replace(
            self,
            constant=self.constant[:, :, index],
            layer=self.layer[:, :, index],
            working=self.working[:, :, index],
            holds_activations=self.holds_activations[index],
            released=self.released[index],
            selector=self.selector[index],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeTable(_Rows):
    """Seconds. t_s = stage[class] + sum_jr layers_jr * layer[j, r] (one micro-batch, forward + backward + recompute);
    g_s = stage_tail[class] + sum_j layers_j * layer_tail[j] + sum_j offloaded_j * layer_offload[j] (once a step).
    The step is `schedule.step_seconds` of the t_s and g_s with `fixed`.
    """

    layer: FloatArray  # (n, J, R)
    stage: FloatArray  # (n, C)
    layer_tail: FloatArray  # (n, J)
    layer_offload: FloatArray  # (n, J)
    stage_tail: FloatArray  # (n, C)
    fixed: FloatArray  # (n,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Both sides of every candidate."""

    memory: MemoryTable
    time: TimeTable

    def __len__(self) -> int:
        """Candidates priced."""
        return int(np.shape(self.time.fixed)[0])

    def take(self, index: Any) -> Self:
        """The candidates at `index`."""
        return type(self)(memory=self.memory.take(index), time=self.time.take(index))


def price(job: Job, strategy: Strategy, calibration: Calibration, *, oom_risk: float = 0.01) -> Table:
    """Coefficients of every candidate, shape (n,); memory and time by the formulas the ledger uses.

    Raises:
        MissingCalibration: a term has no constant for this device or framework.
    """
    from cost_models.memory import memory_table  # noqa: PLC0415  the formulas import the types above
    from cost_models.time import time_table  # noqa: PLC0415

    return Table(
        memory=memory_table(job, strategy, calibration, oom_risk=oom_risk),
        time=time_table(job, strategy, calibration),
    )
