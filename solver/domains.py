"""Domains: for every decision, the closed list of values on offer; and the user's requirements that narrow them.

Degrees without a list of their own (`DEGREES`) are offered every divisor that the topology allows, not only powers
of two.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cost_models.errors import BrokenRule, UnknownName
from cost_models.job import Job
from cost_models.specs.choices import (
    ATTENTIONS,
    BACKENDS,
    COMPRESSIONS,
    CROSS_ENTROPIES,
    LOSSLESS,
    PRECISIONS,
    RECOMPUTES,
)
from cost_models.specs.cluster import DeviceSpec

Value = int | str | bool

CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "backend": BACKENDS,
    "precision": PRECISIONS,
    "attention": ATTENTIONS,
    "cross_entropy": CROSS_ENTROPIES,
    "gradient_compression": COMPRESSIONS,
    "recompute": RECOMPUTES,
}
"""Decisions that are names. `recompute` is decided layer by layer: its domain says which modes a layer may have."""
FLAGS: Final = (
    "sequence_parallel",
    "optimizer_offload",
    "parameter_offload",
    "activation_offload",
    "communication_overlap",
    "expert_overlap",
    "fused_kernels",
    "cuda_graph",
    "compile",
)
"""Decisions that are yes or no."""
UNLESS_ASKED: Final[Mapping[str, bool]] = {
    "activation_offload": False,
    "expert_overlap": False,
    "fused_kernels": True,
    "cuda_graph": False,
    "compile": False,
}
"""Decisions that are not searched unless the request names them: whether a model's code allows them no size tells."""
DEGREES: Final = (
    "tensor_parallel",
    "context_parallel",
    "expert_parallel",
    "expert_tensor_parallel",
    "pipeline_parallel",
    "data_parallel",
    "virtual_pipeline_stages",
    "micro_batch_size",
    "gradient_accumulation_steps",
)
"""Decisions that factor the devices and the batch; None offers every divisor."""
NUMBERS: Final = (*DEGREES, "zero_stage", "recompute_interval", "gpus")
TOPOLOGY: Final = ("backend", *DEGREES)
"""Columns that fix who computes what; the remaining ones are features of a topology."""
FEATURES: Final = (
    "precision",
    "attention",
    "cross_entropy",
    "gradient_compression",
    "zero_stage",
    "recompute_interval",
    *FLAGS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One wish of the user about one decision: what may stay of its domain, in the user's own words."""

    key: str
    text: str
    allowed: tuple[Value, ...] | None = None
    """The values named; naming one that is off by default is permission for it."""
    forbidden: tuple[Value, ...] = ()
    """Taken away from what is on offer; permits nothing."""
    minimum: int | None = None
    maximum: int | None = None

    def admits(self, value: Value) -> bool:
        """Whether the wish leaves this value."""
        if value in self.forbidden or (self.allowed is not None and value not in self.allowed):
            return False
        if self.minimum is not None and int(value) < self.minimum:
            return False
        return self.maximum is None or int(value) <= self.maximum


@dataclass(frozen=True, slots=True)
class Domains:
    """Values on offer by decision; a decision that is absent has the default of the job."""

    values: Mapping[str, tuple[Value, ...] | None] = field(default_factory=dict)

    def __getitem__(self, key: str) -> tuple[Value, ...] | None:
        """The values of one decision; None means every divisor."""
        return self.values[key]

    def with_values(self, **values: Iterable[Value] | None) -> "Domains":
        """These domains with some decisions replaced."""
        for key in values:
            check_key(key)
        return Domains({**self.values, **{k: None if v is None else tuple(v) for k, v in values.items()}})


def check_key(key: str) -> None:
    """Refuse a decision nobody knows."""
    known = (*CHOICES, *FLAGS, *NUMBERS)
    if key not in known:
        raise UnknownName("decision", key, known)


def default_precisions(*devices: DeviceSpec) -> tuple[Value, ...]:
    """The 16-bit format that the devices multiply at full rate, else fp32; narrower ones change results."""
    for name in ("bf16", "fp16"):
        if all(name in device.peak_flops for device in devices):
            return (name,)
    return ("fp32",)


def default_domains(job: Job, pools: Sequence[int] | None = None) -> Domains:
    """What is on offer when nobody restricts anything: every lossless choice that does not change what is learned.

    `pools`: those in use, all of the cluster unless stated.
    """
    training, every = job.training, job.cluster.pools
    devices = [every[pool].device for pool in (range(len(every)) if pools is None else pools)]
    flash = all("bf16" in device.peak_flops and device.kind == "gpu" for device in devices)
    kernels = ("flash",) if flash else ("sdpa", "eager")
    values: dict[str, tuple[Value, ...] | None] = dict.fromkeys(DEGREES)
    values |= {
        "backend": BACKENDS,
        "precision": default_precisions(*devices) if training.precision == "auto" else (training.precision,),
        "attention": kernels if training.attention == "auto" else (training.attention,),
        "cross_entropy": CROSS_ENTROPIES,
        "gradient_compression": tuple(c for c in COMPRESSIONS if c in LOSSLESS),
        "zero_stage": (0, 1, 2, 3),
        "recompute": RECOMPUTES,
        "recompute_interval": (1, 2, 4),
        "sequence_parallel": (False, True),
        "optimizer_offload": (False, True),
        "parameter_offload": (False, True),
        # Some back ends run Muon only without overlap.
        "communication_overlap": (True, False) if training.optimizer == "muon" else (True,),
        "virtual_pipeline_stages": (1, 2, 3, 4, 6, 8),
        "gpus": (job.cluster.gpus,),
    }
    values |= {key: (value,) for key, value in UNLESS_ASKED.items()}
    return Domains(values)


def requirement(key: str, wish: Any) -> Requirement:
    """Read a wish: a value pins, a list restricts, {min, max} bounds a number.

    Raises:
        UnknownName: no such decision, or no such value of it.
        BrokenRule: the wish has the wrong form, or leaves nothing.
    """
    check_key(key)
    text = f"{key}: {wish}"
    if isinstance(wish, Mapping):
        extra = set(wish) - {"min", "max"}
        if extra or key not in NUMBERS:
            raise BrokenRule(f"{key}: {wish} is no range; a number takes {{min, max}}")
        return Requirement(key=key, text=text, minimum=wish.get("min"), maximum=wish.get("max"))
    wished = tuple(wish) if isinstance(wish, list | tuple | set) else (wish,)
    if not wished:
        raise BrokenRule(f"{key}: an empty list leaves no value")
    return Requirement(key=key, text=text, allowed=tuple(_value(key, value) for value in wished))


def _value(key: str, value: Any) -> Value:
    if key in CHOICES:
        if value not in CHOICES[key]:
            raise UnknownName(key, str(value), CHOICES[key])
        return str(value)
    if key in FLAGS:
        if value not in (True, False, 0, 1):
            raise BrokenRule(f"{key}: {value!r} is neither true nor false")
        return bool(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise BrokenRule(f"{key}: {value!r} is not a whole number")
    return value


OFFLOAD_PERMISSIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "forbid": (),
    "optimizer": ("optimizer_offload",),
    "allow": ("optimizer_offload", "parameter_offload", "activation_offload"),
}
COMPRESSION_PERMISSIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "lossless": tuple(c for c in COMPRESSIONS if c in LOSSLESS),
    "lossy": tuple(COMPRESSIONS),
}


def offload_requirements(permission: str) -> tuple[Requirement, ...]:
    """`offload: forbid | optimizer | allow` as requirements on the three offload flags."""
    if permission not in OFFLOAD_PERMISSIONS:
        raise UnknownName("offload permission", permission, OFFLOAD_PERMISSIONS)
    kept = OFFLOAD_PERMISSIONS[permission]
    flags = ("optimizer_offload", "parameter_offload", "activation_offload")
    return tuple(Requirement(key=f, text=f"offload: {permission}", allowed=(False,)) for f in flags if f not in kept)


def permit_compression(domains: Domains, permission: str) -> Domains:
    """`gradient_compression: lossless | lossy` as the domain it opens."""
    if permission not in COMPRESSION_PERMISSIONS:
        raise UnknownName("compression permission", permission, COMPRESSION_PERMISSIONS)
    return domains.with_values(gradient_compression=COMPRESSION_PERMISSIONS[permission])


def narrowed(domains: Domains, requirements: Iterable[Requirement]) -> Domains:
    """The domains after every wish. A pinned degree becomes its list; the enumeration applies bounds on open degrees.

    A wish that names a value which is not on offer by default (a lossy compression, fp8, a cuda graph) puts it on
    offer, alone or in a list: naming is permission. Back ends are the exception, as the problem lists those itself.
    """
    values, named = dict(domains.values), {"backend"}
    for wish in requirements:
        offered = values[wish.key]
        if offered is None or (wish.allowed is not None and wish.key not in named):
            offered = wish.allowed
        if wish.allowed is not None:
            named.add(wish.key)
        values[wish.key] = offered and tuple(value for value in offered if wish.admits(value))
    return Domains(values)
