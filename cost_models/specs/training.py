"""The training job: what is trained, on what batch, with which numerics."""

from typing import Any, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, field_validator, model_validator

from cost_models.specs.base import Spec
from cost_models.specs.choices import Attention, Method, Optimizer, Precision
from cost_models.specs.model import BrokenRuleValue


class LoraSpec(Spec):
    """Low-rank adapters (arXiv:2106.09685)."""

    rank: PositiveInt = 16
    target_modules: Literal["all-linear", "attention", "qv"] | tuple[str, ...] = "all-linear"
    train_embeddings: bool = False
    adapter_dtype: Literal["fp32", "model"] = "fp32"
    """peft keeps adapters in fp32 unless told otherwise."""
    double_quantization: bool = True
    dropout: float = Field(default=0.0, ge=0.0, lt=1.0)
    """Probability of dropout on an adapter's input: above 0 a mask is kept, and the dropped copy."""


class BatchRange(Spec):
    """A global batch that may vary. [sequences]"""

    min: PositiveInt
    max: PositiveInt

    @model_validator(mode="after")
    def _ordered(self) -> "BatchRange":
        if self.min > self.max:
            raise BrokenRuleValue(f"min {self.min} exceeds max {self.max}")
        return self


class TrainingSpec(Spec):
    """One training job. What is None or `auto` is filled with a default of the back end, and the answer says so."""

    method: Method = "full"
    sequence_length: PositiveInt
    eval_sequence_length: PositiveInt | None = None
    eval_batch_size: PositiveInt | None = None
    global_batch_size: PositiveInt | BatchRange
    precision: Precision | Literal["auto"] = "auto"
    optimizer: Optimizer = "adamw"
    attention: Attention | Literal["auto"] = "auto"
    lora: LoraSpec | None = None
    padded: bool = False
    """Batches carry a padding mask, which sdpa attention materialises per layer."""
    dropout: float | None = Field(default=None, ge=0.0, lt=1.0)
    """Probability of dropout, hidden and attention: above 0 masks are kept. None is the back end's own."""
    expert_imbalance: float = Field(default=1.0, ge=1.0)
    """Load of the fullest expert over the mean; 1.0 when padded to capacity or forced balanced."""

    state_precision: Literal["auto", "mixed", "pure"] = "auto"
    """What a 16-bit precision means for weights, gradients and optimizer states: `mixed` keeps an fp32 copy, `pure`
    none; `auto` is the back end's own."""
    optimizer_in_backward: bool = False
    """Each gradient is applied and freed as soon as backward has made it (no accumulation is possible then)."""
    optimizer_paged: bool = False
    """Optimizer states are paged to the host when the device is short of memory."""
    expandable_segments: bool = False
    """The allocator grows its segments (PYTORCH_ALLOC_CONF=expandable_segments:True): less is reserved in vain."""
    reference_model: bool = False
    """A frozen copy of the model beside the trained one, as preference and RL losses keep."""
    eval_kept_samples: NonNegativeInt = 0
    """Evaluation samples whose logits stay on the device until the evaluation ends (metrics computed over all)."""
    offload_to: Literal["cpu", "nvme"] = "cpu"
    load: Literal["auto", "sharded", "whole_on_host", "whole_on_device"] = "auto"
    """How weights reach the devices: shard by shard, or a whole 16-bit model first, per rank, on its host or device."""
    save: Literal["auto", "sharded", "whole_on_device"] = "auto"
    """How a checkpoint leaves them: `whole_on_device` gathers all weights on a device."""

    @field_validator("global_batch_size", mode="before")
    @classmethod
    def _range(cls, value: Any) -> Any:
        if isinstance(value, list | tuple):
            raise BrokenRuleValue("a list is no batch size; write one number, or {min: 96, max: 160} for a range")
        return value

    @property
    def batch_range(self) -> BatchRange:
        """The global batch as a range, a single value included."""
        batch = self.global_batch_size
        return batch if isinstance(batch, BatchRange) else BatchRange(min=batch, max=batch)

    @model_validator(mode="after")
    def _adapters(self) -> "TrainingSpec":
        if self.optimizer_in_backward and self.method != "full":
            raise BrokenRuleValue(f"optimizer_in_backward is given but method is {self.method}; it needs method: full")
        if self.method == "full" and self.lora is not None:
            raise BrokenRuleValue("lora is given but method is full; say method: lora or qlora")
        return self

    @property
    def adapters(self) -> LoraSpec | None:
        """The adapters trained, with defaults; None for full training."""
        return None if self.method == "full" else (self.lora or LoraSpec())
