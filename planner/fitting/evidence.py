"""Which measured rows tell something about time, how much each counts, and which no fit may touch."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.configuration import Configuration
from planner.datasets.jobs import Case, case_of
from planner.datasets.unusable import Unusable
from planner.measurement import Measurement
from planner.uncertainty import SMALL_WIDTH, stack_of
from planner.validate.comparison import measured_step
from planner.validate.parts import part_of

HELD_OUT: Final = 0.2
"""Share of every source that no fit touches: it judges the accuracy gate."""
COMPOSED_SHARE: Final = 1 / 15
"""Share of vTrain's single-node table that is fitted on: its rows are sums of a few hundred numbers."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A row that states a time and can be priced."""

    row: Measurement
    case: Case
    seconds: float

    @property
    def configuration(self) -> Configuration:
        """What ran."""
        return self.case.configuration

    @property
    def stack(self) -> tuple[str, str]:
        """Framework, with or without adapters, and device family."""
        return stack_of(self.case.job, self.configuration)

    @property
    def moe(self) -> bool:
        """Whether the model routes tokens to experts."""
        return self.case.job.model.moe is not None

    @property
    def small(self) -> bool:
        """Whether the model is so small that the host, not the device, sets its pace."""
        return self.case.job.model.hidden_size < SMALL_WIDTH

    @property
    def group(self) -> str:
        """The source, or the part of it that is reported by itself."""
        return f"{self.row.source} {part_of(self.row, self.case)}".strip()

    @property
    def shape(self) -> str:
        """What makes two rows rows of one model."""
        model = self.case.job.model
        return f"{model.num_hidden_layers}x{model.hidden_size}x{model.intermediate_size}"


def samples(rows: Iterable[Measurement]) -> list[Sample]:
    """Every row that states a time and can be priced, in the order given."""
    return sorted_out(rows)[0]


def sorted_out(rows: Iterable[Measurement]) -> tuple[list[Sample], list[tuple[Measurement, str]]]:
    """Those, and the others each with why it tells nothing about time."""
    found, unused = [], []
    for row in rows:
        if not row.states_time:
            unused.append((row, "states no step time"))
            continue
        try:
            case = case_of(row)
            found.append(Sample(row, case, measured_step(row, case)))
        except Unusable as reason:
            unused.append((row, str(reason)))
    return found, unused


def excluded(sample: Sample) -> str:
    """Why a fit leaves the row out; "" where it does not."""
    row, configuration = sample.row, sample.configuration
    if sample.group == "megatron-ci toy":
        return "toy model in deterministic mode"
    if row.source == "torchtune":
        return "printed rates exceed the device's peak, or are totals of several devices"
    if "rowwise" in row.precision.lower():
        return "precision or recipe not modelled"
    if configuration.parameter_offload or any(stage.optimizer_layers_offloaded for stage in configuration.stages):
        return "offloaded: the host is not stated"
    return ""


def draw(row: Measurement, salt: str) -> float:
    """A number in [0, 1) that depends on the row's reference alone."""
    text = f"{salt}|{row.source}|{row.ref}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64


def held_out(row: Measurement) -> bool:
    """Whether the row belongs to the part of its source that judges, and is never fitted on."""
    return draw(row, "held out") < HELD_OUT


def fitted_on(found: Sequence[Sample]) -> list[Sample]:
    """The rows of a fit: not held out, not excluded, of the composed table a small share."""
    return [
        sample
        for sample in found
        if not held_out(sample.row)
        and not excluded(sample)
        and (sample.group != "vtrain single-node" or draw(sample.row, "composed") < COMPOSED_SHARE)
    ]


def weights(found: Sequence[Sample], exponent: float = -0.3) -> list[float]:
    """Weight of each row, n^exponent for the n rows of its group, with mean 1: no source outvotes the others."""
    counts = Counter(sample.group for sample in found)
    raw = [counts[sample.group] ** exponent for sample in found]
    mean = sum(raw) / len(raw) if raw else 1.0
    return [value / mean for value in raw]


def pooled(case: Case) -> ClusterSpec:
    """The cluster with one node: the number of nodes of a pool does not enter a configuration's time."""
    return ClusterSpec(pools=(case.job.pool.model_copy(update={"nodes": 1}),))
