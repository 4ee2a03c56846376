"""The plan: the answer to a request, as JSON. The key lists are closed; all but `envelope` is reproducible."""

import hashlib
import json
from datetime import datetime
from typing import Any, Final, Literal, Self

from pydantic import ConfigDict, Field

from cost_models.specs.base import Spec
from cost_models.specs.cluster import NodePool
from cost_models.specs.configuration import Configuration
from planner.errors import SeveralPools
from planner.question import Question

Status = Literal["optimal", "feasible", "infeasible"]
Verdict = Literal["fits", "at_risk", "does_not_fit"]
Phase = Literal["load", "first_step", "step", "eval", "save"]
MAX_BYTES: Final = 64 * 2**20
"""Largest plan text read back. A deep pipeline lists every stage and instant: far more than any request."""
KnowledgeClass = Literal["known_stack", "new_device", "unseen"]


class Quantity(Spec):
    """A predicted size with its interval at the asked risk. [bytes]"""

    median_bytes: int
    lower_bytes: int
    upper_bytes: int


class Binding(Spec):
    """Where and when memory is fullest."""

    stage: int
    phase: Phase
    instant: str


class StagePrediction(Spec):
    """Memory of one rank of one pipeline stage."""

    stage: int
    instant: str
    """Its fullest instant."""
    allocated_bytes: int
    instants_bytes: dict[str, dict[str, int]]
    """Instant -> term -> bytes."""
    host_bytes: int
    """Host memory of one rank."""


class MemoryPrediction(Spec):
    """Does it fit, how sure is that, and what fills it."""

    verdict: Verdict
    oom_probability: float
    allocated: Quantity
    reserved: Quantity
    device: Quantity
    conservative_bytes: int
    usable_bytes: int
    binding: Binding
    breakdown_bytes: dict[str, int]
    """Named terms at the binding instant; they sum to allocated.median_bytes."""
    per_stage: tuple[StagePrediction, ...]
    phases: dict[Phase, int]
    """Most allocated bytes of any rank in each phase."""
    host_bytes: int
    """Of the fullest node."""
    host_usable_bytes: int


class TimePrediction(Spec):
    """How long one optimizer step takes and where the time goes."""

    step_seconds: float
    interval_seconds: dict[Literal["80", "90"], tuple[float, float]]
    breakdown_seconds: dict[str, float]
    """Exposed parts; they sum to step_seconds."""
    hidden_seconds: dict[str, float]
    """Covered by compute."""
    tokens_per_second_per_gpu: float
    samples_per_second: float
    mfu: float
    communication_fraction: float


class Prediction(Spec):
    """Both ledgers, summed up."""

    memory: MemoryPrediction
    time: TimePrediction


class Optimality(Spec):
    """The proof. An estimate proves nothing and has none."""

    objective: tuple[str, ...]
    value: float
    bound: float
    gap: float
    proven: bool
    candidates: dict[str, int]
    """Counted along the way: enumerated, legal, priced, bounded, solved, ..."""
    certificate: dict[str, Any]


class Assumption(Spec):
    """An input that the request left open: the value taken and where it is from, or the scenarios looked at."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, serialize_by_alias=True, validate_by_name=True
    )

    key: str
    value: Any = None
    from_: str | None = Field(default=None, alias="from")
    scenarios: tuple[Any, ...] | None = None
    spread: float | None = None


class Explanation(Spec):
    """One sentence of why, with its figures."""

    kind: Literal["choice", "runner_up", "binding"]
    subject: str
    """The decision or the rival, such as `zero_stage` or `zero_stage=3 tensor_parallel=2`."""
    text: str
    memory_delta_bytes: int | None = None
    """Peak of the neighbour minus peak of the plan."""
    step_delta_seconds: float | None = None
    verdict: Verdict | None = None
    """Of the neighbour."""


class Alternative(Spec):
    """A plan that lost, or tied within what the prediction can tell apart."""

    configuration: Configuration
    value: float
    step_seconds: float
    conservative_bytes: int
    world_size: int
    within_noise: bool


class Recommendations(Spec):
    """What a run needs beside the configuration."""

    learning_rate_scale: float | None = None
    warmup_steps: int | None = None
    environment: dict[str, str] = Field(default_factory=dict)
    dataloader_workers: int | None = None


class Conflict(Spec):
    """One demand of a set that cannot all be met."""

    resource: str
    """gpu_memory, host_memory, legality, max_step_seconds, ..."""
    text: str
    shortfall_bytes: int | None = None
    """Per GPU (or per node for host memory) in the nearest miss."""
    phase_shortfall_bytes: dict[Phase, int] = Field(default_factory=dict)


class NearestMiss(Spec):
    """The configuration that comes closest to fitting."""

    configuration: Configuration
    memory: MemoryPrediction
    step_seconds: float | None = None


class Relaxation(Spec):
    """A single change of the request, tried, and whether a plan was then found and verified."""

    change: str
    verified: bool
    text: str = ""
    settings: tuple[str, ...] = ()
    """The change as `KEY=VALUE`s for `--set`; empty where it does not work, or there is no such way to say it."""
    step_seconds: float | None = None


class Infeasibility(Spec):
    """Why there is no plan, and what would give one."""

    conflict: tuple[Conflict, ...]
    nearest_miss: NearestMiss | None = None
    relaxations: tuple[Relaxation, ...] = ()


class Provenance(Spec):
    """What the answer was made from; equal provenance promises an equal plan."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, serialize_by_alias=True, validate_by_name=True
    )

    meshwright: str
    calibration: str
    catalogue: str
    legality: str
    ortools: str
    request_hash: str
    class_: KnowledgeClass = Field(alias="class")


class Envelope(Spec):
    """When and where it was made: outside the hash and outside the promise of equality."""

    id: str
    created_at: datetime
    solve_seconds: float
    host: str
    content_sha256: str | None = Field(default=None, description="of all but the envelope; tells an edited plan")


class Plan(Spec):
    """The answer."""

    status: Status
    configuration: Configuration | None
    prediction: Prediction | None
    optimality: Optimality | None
    assumptions: tuple[Assumption, ...] = ()
    explanation: tuple[Explanation, ...] = ()
    warnings: tuple[str, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    recommendations: Recommendations | None = None
    infeasibility: Infeasibility | None = None
    request: Question
    """What was asked, resolved: the model, cluster and job that this plan is for."""
    provenance: Provenance
    envelope: Envelope

    @property
    def pool(self) -> NodePool:
        """The pool that the plan runs on.

        Raises:
            SeveralPools: its stages live in more than one.
        """
        stages = () if self.configuration is None else self.configuration.stages
        used = sorted({stage.pool for stage in stages}) or [0]
        pools = self.request.cluster.pools
        if len(used) > 1:
            raise SeveralPools({k: pools[k].device.name for k in used})
        return pools[used[0]]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return self.model_dump(mode="json")

    def to_json(self) -> str:
        """The plan as people and tools store it: two-space JSON, keys in the order of this file."""
        return self.model_dump_json(indent=2) + "\n"

    def reproducible_json(self) -> str:
        """Everything that equal inputs make equal, byte for byte."""
        return self.model_dump_json(exclude={"envelope"})

    def content_hash(self) -> str:
        """SHA-256 of everything but the envelope, whatever the order of keys and the spelling of numbers.

        Defaults are left out, so that a later release with more keys finds the same.
        """
        content = self.model_dump(mode="json", exclude={"envelope"}, exclude_defaults=True)
        return hashlib.sha256(json.dumps(_plain(content), sort_keys=True).encode()).hexdigest()

    @property
    def edited(self) -> bool:
        """Whether the content differs from what was planned; a plan that records no hash is taken at its word."""
        recorded = self.envelope.content_sha256
        return recorded is not None and recorded != self.content_hash()

    def sealed(self) -> Self:
        """The plan with the hash of its content recorded."""
        envelope = self.envelope.model_copy(update={"content_sha256": self.content_hash()})
        return self.model_copy(update={"envelope": envelope})

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """A plan from its JSON.

        Raises:
            SpecError: it is no plan.
        """
        from planner.reading import read_json

        return cls.read(read_json(text, "the plan", limit=MAX_BYTES))


def _plain(value: Any) -> Any:
    """The value with whole floats as integers: JSON tools write 10.0 and 10 for the same number."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


PLAN_KEYS: Final[tuple[str, ...]] = tuple(Plan.model_fields)
