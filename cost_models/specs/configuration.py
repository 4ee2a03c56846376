"""A configuration: every decision about one run, by name. Its columns without the stage layout are a `Strategy`."""

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from cost_models.specs.base import Spec
from cost_models.specs.choices import Attention, Backend, Compression, CrossEntropy, Optimizer, Precision
from cost_models.specs.model import BrokenRuleValue
from cost_models.specs.training import LoraSpec


class BackendChoice(Spec):
    """The framework that runs the plan and the releases it is written for."""

    name: Backend
    release_range: str = "any"


class RecomputeCounts(Spec):
    """Layers of one stage by how much of their forward is repeated. The first layers are the fully recomputed ones."""

    none: NonNegativeInt = 0
    selective: NonNegativeInt = 0
    full: NonNegativeInt = 0
    interval: PositiveInt = 1
    """Full recompute keeps one boundary every `interval` layers."""


class Stage(Spec):
    """One pipeline stage."""

    pool: NonNegativeInt = 0
    layers: PositiveInt
    recompute: RecomputeCounts
    optimizer_layers_offloaded: NonNegativeInt = 0

    @model_validator(mode="after")
    def _counts(self) -> "Stage":
        counts = self.recompute
        stated = counts.none + counts.selective + counts.full
        if stated != self.layers:
            raise BrokenRuleValue(f"recompute counts {stated} layers but the stage has {self.layers}")
        if self.optimizer_layers_offloaded > self.layers:
            raise BrokenRuleValue(
                f"optimizer_layers_offloaded {self.optimizer_layers_offloaded} exceeds layers {self.layers}"
            )
        return self


class Configuration(Spec):
    """Every decision. `global_batch_size = micro_batch_size x gradient_accumulation_steps x data_parallel`."""

    backend: BackendChoice
    tensor_parallel: PositiveInt = 1
    sequence_parallel: bool = False
    context_parallel: PositiveInt = 1
    expert_parallel: PositiveInt = 1
    expert_tensor_parallel: PositiveInt = 1
    pipeline_parallel: PositiveInt = 1
    virtual_pipeline_stages: PositiveInt = 1
    data_parallel: PositiveInt = 1
    zero_stage: int = Field(default=0, ge=0, le=3)
    micro_batch_size: PositiveInt = 1
    gradient_accumulation_steps: PositiveInt = 1
    stages: tuple[Stage, ...] = Field(min_length=1)
    parameter_offload: bool = False
    activation_offload: bool = False
    gradient_compression: Compression = "none"
    precision: Precision = "bf16"
    attention: Attention = "flash"
    cross_entropy: CrossEntropy = "eager"
    optimizer: Optimizer = "adamw"
    fused_kernels: bool = True
    cuda_graph: bool = False
    compile: bool = False
    communication_overlap: bool = True
    expert_overlap: bool = False
    """Tokens travel to experts and back beside the compute of another micro-batch; with CUDA graphs, the whole step is
    one graph."""
    lora: LoraSpec | None = None

    @property
    def global_batch_size(self) -> int:
        """Sequences of one optimizer step."""
        return self.micro_batch_size * self.gradient_accumulation_steps * self.data_parallel

    @property
    def world_size(self) -> int:
        """Devices used. Expert parallelism re-uses data- and context-parallel ranks and adds none."""
        return self.tensor_parallel * self.context_parallel * self.pipeline_parallel * self.data_parallel

    @model_validator(mode="after")
    def _stages_match(self) -> "Configuration":
        if len(self.stages) != self.pipeline_parallel:
            raise BrokenRuleValue(f"stages lists {len(self.stages)} but pipeline_parallel is {self.pipeline_parallel}")
        return self
