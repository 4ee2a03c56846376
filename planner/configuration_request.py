"""A configuration as a person states it: what is left out is derived, and said so."""

from typing import Any, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, field_validator

from cost_models.errors import BrokenRule
from cost_models.job import Job
from cost_models.schedule import spread
from cost_models.specs.base import Spec
from cost_models.specs.choices import Attention, Backend, Compression, CrossEntropy, Optimizer, Precision, Recompute
from cost_models.specs.configuration import BackendChoice, Configuration, Stage
from cost_models.specs.training import LoraSpec
from planner.legality import release_range
from planner.plan import Assumption


class ConfigurationRequest(Spec):
    """A `Configuration` with everything optional, and two short forms for its stages."""

    backend: BackendChoice | None = None
    tensor_parallel: PositiveInt = 1
    sequence_parallel: bool = False
    context_parallel: PositiveInt = 1
    expert_parallel: PositiveInt = 1
    expert_tensor_parallel: PositiveInt | None = None
    pipeline_parallel: PositiveInt | None = None
    virtual_pipeline_stages: PositiveInt = 1
    data_parallel: PositiveInt | None = None
    zero_stage: int = Field(default=0, ge=0, le=3)
    micro_batch_size: PositiveInt | None = None
    gradient_accumulation_steps: PositiveInt | None = None
    stages: tuple[Stage, ...] | None = Field(default=None, min_length=1, max_length=256)
    layers: tuple[PositiveInt, ...] | None = Field(
        default=None, max_length=256, description="layers of each stage; even when left out"
    )
    recompute: Recompute | None = Field(default=None, description="of every layer, where stages are not stated")
    recompute_interval: PositiveInt | None = None
    optimizer_layers_offloaded: NonNegativeInt | Literal["all"] | None = Field(
        default=None, description="of each stage"
    )
    parameter_offload: bool = False
    activation_offload: bool = False
    gradient_compression: Compression = "none"
    precision: Precision | None = None
    attention: Attention | None = None
    cross_entropy: CrossEntropy | None = None
    optimizer: Optimizer | None = None
    fused_kernels: bool = True
    cuda_graph: bool = False
    compile: bool = False
    communication_overlap: bool = True
    expert_overlap: bool = False
    lora: LoraSpec | None = None

    @field_validator("backend", mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value


class _Derived:
    """Collects what was derived, beside the values."""

    def __init__(self) -> None:
        self.assumptions: list[Assumption] = []

    def __call__(self, key: str, stated: Any, default: Any, source: str) -> Any:
        if stated is not None:
            return stated
        self.assumptions.append(Assumption(key=f"configuration.{key}", value=default, from_=source))
        return default


def complete(
    stated: ConfigurationRequest, job: Job, backends: tuple[Backend, ...]
) -> tuple[Configuration, tuple[Assumption, ...]]:
    """The whole configuration, and what of it was derived from the job or taken from the framework.

    Raises:
        BrokenRule: its numbers contradict each other, the cluster or the training job.
    """
    from cost_models import catalog

    take, training = _Derived(), job.training
    backend = take("backend", stated.backend, BackendChoice(name=backends[0]), "first back end allowed")
    if backend.name not in backends:
        raise BrokenRule(f"configuration.backend is {backend.name} but backend allows {', '.join(backends)}")
    if backend.release_range == "any":
        backend = BackendChoice(name=backend.name, release_range=release_range(backend.name))
    facts = catalog.framework(backend.name)
    _agree(stated, job)
    pipeline = _pipeline(stated)
    attention = None if training.attention == "auto" else training.attention
    values = {
        "backend": backend,
        "pipeline_parallel": pipeline,
        **_batch(stated, job, pipeline, take),
        "stages": _stages(stated, job, pipeline),
        "expert_tensor_parallel": stated.expert_tensor_parallel
        or (stated.tensor_parallel if backend.name == "megatron" and job.model.moe is not None else 1),
        "precision": stated.precision or training.precision,
        "attention": take("attention", stated.attention or attention, facts.default_attention, backend.name),
        "cross_entropy": take("cross_entropy", stated.cross_entropy, facts.default_cross_entropy, backend.name),
        "optimizer": stated.optimizer or training.optimizer,
        "lora": stated.lora or training.adapters,
    }
    for name in Configuration.model_fields:
        if name not in values:
            values[name] = getattr(stated, name)
    return Configuration.read(values), tuple(take.assumptions)


def _agree(stated: ConfigurationRequest, job: Job) -> None:
    training = job.training
    for name in ("precision", "attention", "optimizer"):
        here, there = getattr(stated, name), getattr(training, name)
        if here is not None and there not in ("auto", here):
            raise BrokenRule(f"configuration.{name} is {here} but training.{name} is {there}")
    if stated.lora is not None and stated.lora != training.adapters:
        raise BrokenRule(f"configuration.lora is given but training.method is {training.method} with other adapters")


def _pipeline(stated: ConfigurationRequest) -> int:
    lists = {"stages": stated.stages, "layers": stated.layers}
    lengths = {name: len(value) for name, value in lists.items() if value is not None}
    pipeline = stated.pipeline_parallel or next(iter(lengths.values()), 1)
    for name, length in lengths.items():
        if length != pipeline:
            raise BrokenRule(f"configuration.{name} lists {length} stages but pipeline_parallel is {pipeline}")
    return pipeline


def _batch(stated: ConfigurationRequest, job: Job, pipeline: int, take: _Derived) -> dict[str, int]:
    gpus, inner = job.cluster.gpus, stated.tensor_parallel * stated.context_parallel * pipeline
    degrees = (
        f"tensor_parallel {stated.tensor_parallel} x context_parallel {stated.context_parallel} "
        f"x pipeline_parallel {pipeline}"
    )
    if stated.data_parallel is None and gpus % inner:
        raise BrokenRule(f"configuration: {degrees} is {inner}, which does not divide the {gpus} GPUs of the cluster")
    data = int(take("data_parallel", stated.data_parallel, gpus // inner, "GPUs of the cluster over the other degrees"))
    if data * inner > gpus:
        raise BrokenRule(
            f"configuration: {degrees} x data_parallel {data} is {data * inner} but the cluster has {gpus} GPUs"
        )
    asked = job.training.batch_range
    share, micro, steps = asked.max // data, stated.micro_batch_size, stated.gradient_accumulation_steps
    if micro is None:
        micro = max(1, share // steps) if steps is not None else 1
        take("micro_batch_size", None, micro, "global_batch_size" if steps is not None else "1 where nothing is stated")
    if steps is None:
        steps = max(1, share // micro)
        take("gradient_accumulation_steps", None, steps, "global_batch_size over micro_batch_size x data_parallel")
    total = micro * steps * data
    if not asked.min <= total <= asked.max:
        said = f"{asked.min}" if asked.min == asked.max else f"{asked.min} to {asked.max}"
        raise BrokenRule(
            f"configuration: micro_batch_size {micro} x gradient_accumulation_steps {steps} x data_parallel {data} "
            f"is {total} but training.global_batch_size is {said}"
        )
    return {"data_parallel": data, "micro_batch_size": micro, "gradient_accumulation_steps": steps}


def _stages(stated: ConfigurationRequest, job: Job, pipeline: int) -> tuple[Stage, ...]:
    total = job.model.num_hidden_layers
    if stated.stages is not None:
        beside = [n for n in ("layers", "recompute", "optimizer_layers_offloaded") if getattr(stated, n) is not None]
        if beside:
            raise BrokenRule(f"configuration gives stages and {beside[0]}; stages say it already")
        stages = stated.stages
    else:
        if pipeline > total:
            raise BrokenRule(f"configuration.pipeline_parallel {pipeline} exceeds num_hidden_layers {total}")
        even = tuple(total // pipeline + (index < total % pipeline) for index in range(pipeline))
        if stated.virtual_pipeline_stages > 1:
            short = spread(total, pipeline, stated.virtual_pipeline_stages)
            even = short if min(short) > 0 else even
        stages = tuple(_stage(stated, layers) for layers in stated.layers or even)
    if (count := sum(stage.layers for stage in stages)) != total:
        raise BrokenRule(f"configuration: the stages hold {count} layers but num_hidden_layers is {total}")
    return stages


def _stage(stated: ConfigurationRequest, layers: int) -> Stage:
    mode, offloaded = stated.recompute or "none", stated.optimizer_layers_offloaded
    return Stage.read(
        {
            "layers": layers,
            "recompute": {mode: layers, "interval": stated.recompute_interval or 1},
            "optimizer_layers_offloaded": layers if offloaded == "all" else offloaded or 0,
        }
    )
