"""Seconds by name: what the formulas of this package return and how they add up."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from cost_models.arrays import Array

TERMS: Final = (
    "compute", "attention", "elementwise", "launch_floor", "recompute", "tensor_parallel", "context_parallel",
    "expert_parallel", "pipeline_bubble", "point_to_point", "data_parallel", "offload", "optimizer", "fixed",
)  # fmt: skip
"""Names of `TimeLedger.exposed`, in the order in which they are summed."""


@dataclass(frozen=True, slots=True)
class Work:
    """Exposed seconds by term, which add to the step, and hidden seconds, which compute covers."""

    exposed: Mapping[str, Array] = field(default_factory=dict)
    hidden: Mapping[str, Array] = field(default_factory=dict)

    @property
    def seconds(self) -> Array:
        """What the step waits for: the exposed terms in the order of TERMS. [s]"""
        return sum((self.exposed[name] for name in TERMS if name in self.exposed), 0.0)

    def of(self, terms: Collection[str]) -> Array:
        """What the step waits for of some terms, in the order of TERMS. [s]"""
        return sum((self.exposed[name] for name in TERMS if name in self.exposed and name in terms), 0.0)

    def __add__(self, other: "Work") -> "Work":
        """Term by term."""
        return Work(_merged(self.exposed, other.exposed), _merged(self.hidden, other.hidden))

    def __mul__(self, factor: Array) -> "Work":
        """Every term `factor` times."""
        return Work({k: v * factor for k, v in self.exposed.items()}, {k: v * factor for k, v in self.hidden.items()})


def _merged(left: Mapping[str, Array], right: Mapping[str, Array]) -> dict[str, Array]:
    return {k: left.get(k, 0.0) + right.get(k, 0.0) for k in (*left, *(k for k in right if k not in left))}
