"""A problem: the job, what may be decided, what is wanted. All that the solver needs, nothing it has to look up."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from cost_models.calibration import Calibration
from cost_models.errors import BrokenRule, MissingKey
from cost_models.job import Job
from cost_models.specs.choices import BACKENDS, OBJECTIVES, SPARING, Backend, ObjectiveName
from cost_models.strategy import Strategy
from cost_models.table import Table
from solver.arrangement import Arrangement, pool_counts
from solver.domains import Domains, Requirement, default_domains, narrowed
from solver.refuted import Refuted


class Pricing(Protocol):
    """How strategies become coefficients; `cost_models.table.price` unless a test brings its own."""

    def __call__(self, job: Job, strategy: Strategy, calibration: Calibration, *, oom_risk: float = ...) -> Table:
        """Coefficients of every row of `strategy`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Side constraints on predicted quantities; None leaves one open."""

    max_step_seconds: float | None = None
    max_memory_bytes: int | None = None
    """Of the allocated peak, beside what the device holds."""
    max_host_memory_bytes: int | None = None
    """Of one node, beside what it holds."""
    max_cost_per_step: float | None = None
    max_cost_per_token: float | None = None
    max_energy_per_step: float | None = None
    """Of all devices at their TDP. [J]"""
    min_tokens_per_second: float | None = None
    """Of all devices together."""
    min_tokens_per_second_per_gpu: float | None = None
    max_communication_fraction: float | None = None
    """Of the step, exposed communication."""
    max_gpus: int | None = None
    min_gpus: int | None = None


PARTS: Final = 1_000_000
"""A limit on a share is kept in whole parts of this, rounded down."""
SIDE: Final = tuple(name for name in Limits.__dataclass_fields__ if not name.endswith("_gpus"))
"""Limits on what is predicted; those on the number of devices are decisions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Deterministic limits: the same request stops at the same place on any machine."""

    max_priced_rows: int = 20_000_000
    max_solves: int = 20_000
    row_deterministic_time: float = 20.0
    """CP-SAT's deterministic units for one inner model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One question to the solver."""

    job: Job
    calibration: Calibration
    objectives: tuple[ObjectiveName, ...] = ("throughput",)
    """In order of importance; each is proven before the next is asked."""
    backends: tuple[Backend, ...] = BACKENDS
    domains: Domains = field(default_factory=Domains)
    """Values on offer; decisions left out have the default of the job."""
    requirements: tuple[Requirement, ...] = ()
    limits: Limits = Limits()
    oom_risk: float = 0.01
    objective_tolerance: float = 0.0
    """Relative loss of the objectives that a simpler configuration is worth."""
    budget: Budget = Budget()
    alternatives: int = 5
    arrangement: Arrangement | None = None
    """Which pools do what, where the cluster has several: a search looks at one arrangement."""
    refuted: Refuted | None = field(default=None, compare=False, repr=False)
    """What the answer that this is a question of has refuted so far."""

    def __post_init__(self) -> None:
        """Refuse a problem that contradicts itself before any work."""
        if not self.objectives:
            raise BrokenRule(f"objective: name at least one of {', '.join(OBJECTIVES)}")
        unknown = [name for name in self.objectives if name not in OBJECTIVES]
        if unknown:
            raise BrokenRule(f"objective {unknown[0]!r} is none of {', '.join(OBJECTIVES)}")
        if not 0 <= self.objective_tolerance < 1:
            raise BrokenRule(f"objective_tolerance {self.objective_tolerance} is not in [0, 1)")
        limits = self.limits
        priced = bool({"cost", "cost_per_token"} & set(self.objectives))
        priced |= limits.max_cost_per_step is not None or limits.max_cost_per_token is not None
        powered = "energy" in self.objectives or limits.max_energy_per_step is not None
        for index, pool in enumerate(self.job.cluster.pools):
            if priced and pool.price_per_gpu_hour is None:
                raise MissingKey("price_per_gpu_hour", f"cluster.pools.{index}", "the cost of a step needs it")
            if powered and pool.device.tdp_watts is None:
                raise MissingKey("tdp_watts", f"cluster.pools.{index}.device", "the energy of a step needs it")

    @property
    def open_domains(self) -> Domains:
        """Every decision's values before the user's requirements."""
        return Domains({**default_domains(self.job, self.pools).values, **self.domains.values, **self._counts()})

    @property
    def resolved_domains(self) -> Domains:
        """Every decision's values, the user's requirements applied."""
        return narrowed(self.open_domains, self.requirements)

    def _counts(self) -> dict[str, tuple[int, ...]]:
        """Device counts on offer: the whole cluster, unless fewer can be what is asked for."""
        if self.arrangement is not None:
            return {"gpus": (self.arrangement.gpus,)}
        if "gpus" in self.domains.values:
            return {}
        wanted = self.objectives[0] in SPARING or self.limits.max_gpus is not None
        low, high = self.limits.min_gpus or 1, self.limits.max_gpus or self.job.cluster.gpus
        counts = device_counts(self.job) if wanted else (self.job.cluster.gpus,)
        return {"gpus": tuple(n for n in counts if low <= n <= high)}

    @property
    def pools(self) -> tuple[int, ...]:
        """Pools in use; all of the cluster where that is not decided yet."""
        return tuple(range(len(self.job.cluster.pools))) if self.arrangement is None else self.arrangement.pools

    def without(self, requirement: Requirement) -> "Problem":
        """This problem with one wish dropped (every part of it: wishes are told apart by their text)."""
        return replace(self, requirements=tuple(r for r in self.requirements if r.text != requirement.text))


def device_counts(job: Job) -> tuple[int, ...]:
    """Device counts worth asking for: any number within a node, then whole nodes, up to the cluster."""
    sums = {0}
    for pool in job.cluster.pools:
        sums = {total + count for total in sums for count in (0, *pool_counts(pool))}
    return tuple(sorted(sums - {0}))


Progress = Callable[[str, float], None]
"""Told of each stage of a solve and of each better value found."""
