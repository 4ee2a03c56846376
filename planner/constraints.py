"""Constraints: every decision of a configuration can be pinned, listed, ranged or forbidden."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import (
    Field,
    PositiveFloat,
    PositiveInt,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from cost_models.specs.base import Spec
from cost_models.specs.choices import ATTENTIONS, COMPRESSIONS, CROSS_ENTROPIES, LOSSLESS, PRECISIONS, RECOMPUTES
from cost_models.specs.model import BrokenRuleValue
from cost_models.units import ByteSize
from planner.domain import Domain, Value, parse_domain


@dataclass(frozen=True, slots=True)
class Decision:
    """How one decision is written: its kind, its legal values, the least integer, and what `forbid` alone means."""

    kind: Literal["integer", "flag", "name"]
    legal: tuple[Value, ...] | None = None
    least: int = 1
    off: Value | None = None


_DEGREE = Decision("integer", off=1)
_FLAG = Decision("flag", off=False)

DECISIONS: Final[Mapping[str, Decision]] = {
    "tensor_parallel": _DEGREE,
    "sequence_parallel": _FLAG,
    "context_parallel": _DEGREE,
    "expert_parallel": _DEGREE,
    "expert_tensor_parallel": _DEGREE,
    "pipeline_parallel": _DEGREE,
    "virtual_pipeline_stages": _DEGREE,
    "data_parallel": _DEGREE,
    "zero_stage": Decision("integer", (0, 1, 2, 3), 0, 0),
    "micro_batch_size": Decision("integer"),
    "gradient_accumulation_steps": Decision("integer"),
    "recompute": Decision("name", RECOMPUTES, off="none"),
    "recompute_interval": Decision("integer"),
    "optimizer_offload": _FLAG,
    "parameter_offload": _FLAG,
    "activation_offload": _FLAG,
    "gradient_compression": Decision("name", COMPRESSIONS, off="none"),
    "precision": Decision("name", PRECISIONS),
    "attention": Decision("name", ATTENTIONS),
    "cross_entropy": Decision("name", CROSS_ENTROPIES),
    "fused_kernels": _FLAG,
    "cuda_graph": _FLAG,
    "compile": _FLAG,
    "communication_overlap": _FLAG,
    "expert_overlap": _FLAG,
}
"""Every decision that a request may restrict."""

LIMITS: Final = (
    "max_step_seconds",
    "max_memory_bytes",
    "max_host_memory_bytes",
    "max_cost_per_step",
    "max_cost_per_token",
    "max_energy_per_step",
    "min_tokens_per_second",
    "min_tokens_per_second_per_gpu",
    "max_communication_fraction",
    "max_gpus",
    "min_gpus",
)
"""Limits on predicted quantities and on the number of devices."""
OFFLOADS: Final = ("optimizer_offload", "parameter_offload", "activation_offload")


def _domain(description: str) -> Any:
    return Field(default=None, description=description)


class Constraints(Spec):
    """What the answer must obey. A decision left out is the solver's."""

    tensor_parallel: Domain | None = _domain("tensor-parallel degree")
    sequence_parallel: Domain | None = _domain("sequence parallelism beside tensor parallelism")
    context_parallel: Domain | None = _domain("context-parallel degree")
    expert_parallel: Domain | None = _domain("expert-parallel degree")
    expert_tensor_parallel: Domain | None = _domain("tensor-parallel degree inside experts")
    pipeline_parallel: Domain | None = _domain("pipeline stages")
    virtual_pipeline_stages: Domain | None = _domain("chunks per pipeline stage")
    data_parallel: Domain | None = _domain("data-parallel degree")
    zero_stage: Domain | None = _domain("ZeRO stage, 0 to 3")
    micro_batch_size: Domain | None = _domain("sequences per micro-batch")
    gradient_accumulation_steps: Domain | None = _domain("micro-batches per step")
    recompute: Domain | None = _domain("none, selective, full")
    recompute_interval: Domain | None = _domain("layers per kept boundary")
    offload: Literal["allow", "forbid"] = "allow"
    """`forbid` is short for all three below."""
    optimizer_offload: Domain | None = _domain("optimizer states on the host")
    parameter_offload: Domain | None = _domain("parameters on the host")
    activation_offload: Domain | None = _domain("activations on the host")
    gradient_compression: Domain | None = _domain("lossless, lossy, or a list of methods; lossless unless permitted")
    precision: Domain | None = _domain("compute precision")
    attention: Domain | None = _domain("attention kernel")
    cross_entropy: Domain | None = _domain("cross-entropy kernel")
    fused_kernels: Domain | None = _domain("fused optimizer and norm kernels")
    cuda_graph: Domain | None = _domain("CUDA graphs")
    compile: Domain | None = _domain("torch.compile")
    communication_overlap: Domain | None = _domain("overlap of communication with compute")
    expert_overlap: Domain | None = _domain("tokens travel to experts beside the compute of another micro-batch")
    oom_risk: float = Field(default=0.01, ge=1e-9, lt=0.5)
    """Largest accepted probability of running out of memory."""
    max_step_seconds: PositiveFloat | None = None
    max_memory_bytes: ByteSize | None = None
    max_host_memory_bytes: ByteSize | None = None
    max_cost_per_step: PositiveFloat | None = None
    max_cost_per_token: PositiveFloat | None = None
    max_energy_per_step: PositiveFloat | None = None
    min_tokens_per_second: PositiveFloat | None = None
    min_tokens_per_second_per_gpu: PositiveFloat | None = None
    max_communication_fraction: float | None = Field(default=None, ge=0, lt=1)
    max_gpus: PositiveInt | None = None
    min_gpus: PositiveInt | None = None

    @field_validator(*DECISIONS, mode="before")
    @classmethod
    def _written(cls, raw: Any, info: ValidationInfo) -> Any:
        if raw is None:
            return None
        name = str(info.field_name)
        if name == "gradient_compression" and raw in ("lossless", "lossy"):
            return Domain(values=tuple(c for c in COMPRESSIONS if raw == "lossy" or c in LOSSLESS))
        decision = DECISIONS[name]
        return parse_domain(raw, kind=decision.kind, legal=decision.legal, least=decision.least, off=decision.off)

    @model_validator(mode="after")
    def _rules(self) -> "Constraints":
        if self.min_gpus is not None and self.max_gpus is not None and self.min_gpus > self.max_gpus:
            raise BrokenRuleValue(f"min_gpus {self.min_gpus} exceeds max_gpus {self.max_gpus}")
        self.stated()
        return self

    @model_serializer
    def _written_out(self) -> dict[str, Any]:
        """Only what restricts something, so that equal constraints are written alike."""
        out: dict[str, Any] = {name: domain.model_dump() for name, domain in self.domains().items()}
        out["oom_risk"] = self.oom_risk
        return out | self.limits()

    def limits(self) -> dict[str, Any]:
        """The limits that the request states, by name."""
        return {name: value for name in LIMITS if (value := getattr(self, name)) is not None}

    def stated(self) -> dict[str, Domain]:
        """The decisions that the request restricts, by name.

        Raises:
            BrokenRuleValue: `offload: forbid` beside an offload that is required.
        """
        stated: dict[str, Domain] = {name: d for name in DECISIONS if (d := getattr(self, name)) is not None}
        if self.offload == "forbid":
            for name in OFFLOADS:
                if name in stated and not stated[name].allows(False):
                    raise BrokenRuleValue(f"offload is forbid but {name} is {stated[name]}")
                stated[name] = Domain(values=(False,))
        return {name: stated[name] for name in DECISIONS if name in stated}

    def domains(self) -> dict[str, Domain]:
        """The restricted decisions with those that are restricted unless permitted: compression is lossless."""
        stated = self.stated()
        lossless = Domain(values=tuple(c for c in COMPRESSIONS if c in LOSSLESS))
        return stated if "gradient_compression" in stated else stated | {"gradient_compression": lossless}

    def written_out(self) -> "Constraints":
        """The same restrictions with every short form and every default spelled out."""
        return Constraints.model_validate(self.model_dump())

    def domain(self, name: str) -> Domain:
        """What one decision may be; everything where nothing is stated."""
        return self.domains().get(name, Domain())
