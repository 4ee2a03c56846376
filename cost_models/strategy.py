"""Strategies: configurations without their stage layout, as columns. One row is one candidate; a scalar is one plan."""

from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np

from cost_models.arrays import Integer
from cost_models.specs.choices import ATTENTIONS, BACKENDS, COMPRESSIONS, CROSS_ENTROPIES, PRECISIONS
from cost_models.specs.configuration import Configuration


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """Columns of equal length `(n,)`, or scalars. Choices are indices into `specs.choices`; flags are 0/1."""

    backend: Integer
    precision: Integer
    attention: Integer
    cross_entropy: Integer
    gradient_compression: Integer
    tensor_parallel: Integer
    sequence_parallel: Integer
    context_parallel: Integer
    expert_parallel: Integer
    expert_tensor_parallel: Integer
    pipeline_parallel: Integer
    virtual_pipeline_stages: Integer
    data_parallel: Integer
    zero_stage: Integer
    micro_batch_size: Integer
    gradient_accumulation_steps: Integer
    recompute_interval: Integer
    optimizer_offload: Integer
    """1 when layers may keep their optimizer states on the host (how many is the layout's)."""
    parameter_offload: Integer
    activation_offload: Integer
    communication_overlap: Integer
    expert_overlap: Integer
    fused_kernels: Integer
    cuda_graph: Integer
    compile: Integer

    def __len__(self) -> int:
        """Number of rows; a scalar strategy counts one."""
        return int(np.size(self.tensor_parallel))

    def take(self, index: Any) -> Self:
        """The rows at `index` (integers, a slice or a mask). What is one number for all rows stays it."""
        columns = {f.name: np.asarray(getattr(self, f.name)) for f in fields(self)}
        return type(self)(**{name: c[index] if c.ndim else c[()] for name, c in columns.items()})

    def row(self, index: int) -> Self:
        """Row `index` as a scalar strategy of ints."""
        return type(self)(**{f.name: int(np.atleast_1d(getattr(self, f.name))[index]) for f in fields(self)})

    @property
    def world_size(self) -> Any:
        """Devices used."""
        return self.tensor_parallel * self.context_parallel * self.pipeline_parallel * self.data_parallel

    @property
    def global_batch_size(self) -> Any:
        """Sequences of one optimizer step."""
        return self.micro_batch_size * self.gradient_accumulation_steps * self.data_parallel

    @classmethod
    def of(cls, configuration: Configuration) -> "Strategy":
        """The scalar strategy of a configuration."""
        c = configuration
        return cls(
            backend=BACKENDS.index(c.backend.name),
            precision=PRECISIONS.index(c.precision),
            attention=ATTENTIONS.index(c.attention),
            cross_entropy=CROSS_ENTROPIES.index(c.cross_entropy),
            gradient_compression=COMPRESSIONS.index(c.gradient_compression),
            tensor_parallel=c.tensor_parallel,
            sequence_parallel=int(c.sequence_parallel),
            context_parallel=c.context_parallel,
            expert_parallel=c.expert_parallel,
            expert_tensor_parallel=c.expert_tensor_parallel,
            pipeline_parallel=c.pipeline_parallel,
            virtual_pipeline_stages=c.virtual_pipeline_stages,
            data_parallel=c.data_parallel,
            zero_stage=c.zero_stage,
            micro_batch_size=c.micro_batch_size,
            gradient_accumulation_steps=c.gradient_accumulation_steps,
            recompute_interval=max(stage.recompute.interval for stage in c.stages),
            optimizer_offload=int(any(stage.optimizer_layers_offloaded for stage in c.stages)),
            parameter_offload=int(c.parameter_offload),
            activation_offload=int(c.activation_offload),
            communication_overlap=int(c.communication_overlap),
            expert_overlap=int(c.expert_overlap),
            fused_kernels=int(c.fused_kernels),
            cuda_graph=int(c.cuda_graph),
            compile=int(c.compile),
        )

    def configuration_columns(self) -> dict[str, Any]:
        """A scalar strategy as `Configuration` spells it; stages, back end and facts of the job are excluded."""
        return {
            "tensor_parallel": self.tensor_parallel,
            "sequence_parallel": bool(self.sequence_parallel),
            "context_parallel": self.context_parallel,
            "expert_parallel": self.expert_parallel,
            "expert_tensor_parallel": self.expert_tensor_parallel,
            "pipeline_parallel": self.pipeline_parallel,
            "virtual_pipeline_stages": self.virtual_pipeline_stages,
            "data_parallel": self.data_parallel,
            "zero_stage": self.zero_stage,
            "micro_batch_size": self.micro_batch_size,
            "gradient_accumulation_steps": self.gradient_accumulation_steps,
            "parameter_offload": bool(self.parameter_offload),
            "activation_offload": bool(self.activation_offload),
            "gradient_compression": COMPRESSIONS[int(self.gradient_compression)],
            "precision": PRECISIONS[int(self.precision)],
            "attention": ATTENTIONS[int(self.attention)],
            "cross_entropy": CROSS_ENTROPIES[int(self.cross_entropy)],
            "communication_overlap": bool(self.communication_overlap),
            "expert_overlap": bool(self.expert_overlap),
            "fused_kernels": bool(self.fused_kernels),
            "cuda_graph": bool(self.cuda_graph),
            "compile": bool(self.compile),
        }
