"""Transformers' modules on a tape of sizes, each in the order its code computes.

Source: transformers `models/*/modeling_*.py`, `activations.py`, `integrations/{sdpa_attention,moe}.py`; peft
`tuners/lora/layer.py`. What differs by architecture is a fact of `ArchitectureFacts`.
"""

from dataclasses import dataclass, field
from typing import Any

from cost_models.memory import operators as op
from cost_models.memory.tape import (
    WHOLE,
    Tape,
    Value,
    Width,
    width,
)  # fmt: skip
from cost_models.specs.architecture import ArchitectureFacts
from cost_models.specs.model import ModelSpec
from cost_models.specs.training import LoraSpec

_ROW_WEIGHTS = frozenset({"o_proj", "down_proj"})


@dataclass(frozen=True, kw_only=True)
class Variant:
    """What a layer's tape depends on beside the model: one of few combinations among the candidates."""

    itemsize: float
    """Bytes of the stream between layers, autocast apart."""
    autocast: bool = False
    materialised: bool = False
    on_cpu: bool = False
    """Kernels of the CPU: what PyTorch's tracker sees without a GPU."""
    several_samples: bool = True
    dropout: bool = False
    """Written-out attention and both residual branches drop elements: the fused kernel keeps but its seed."""
    masked: bool = False
    """Fused attention gets a mask."""
    lora: LoraSpec | None = None
    targets: frozenset[str] = frozenset()
    """Weights of the layer that have an adapter."""
    adapter_itemsize: float = 4.0
    all_trained: bool = False
    """Frozen weights have gradients too, beside those that are trained."""
    keeps_inputs: bool = False
    """Products with frozen weights keep their inputs."""


@dataclass(slots=True)
class Blocks:
    """One layer being written down."""

    model: ModelSpec
    facts: ArchitectureFacts
    variant: Variant
    tape: Tape = field(default_factory=Tape)

    @property
    def trained(self) -> bool:
        """Whether the layer's own weights are trained."""
        return self.variant.lora is None or self.variant.all_trained

    @property
    def compute(self) -> float:
        """Bytes of a product's operands."""
        return 2.0 if self.variant.autocast else self.variant.itemsize

    def linear(self, x: Value, name: str, elements: Width, adapted: Width | None = None) -> Value:
        """A linear map with its adapter, if it has one; of a fused product it may be of part of the columns."""
        tape, variant = self.tape, self.variant
        operand = op.cast(tape, x, self.compute) if variant.autocast else x
        out = op.product(
            tape, operand, name, elements, trained=self.trained, name=f"{name}_input",
            gradient="cast" if variant.autocast else "whole", keeps_input=variant.keeps_inputs,
        )  # fmt: skip
        if variant.lora is None or name not in variant.targets:
            return out
        part, tape.part = tape.part, "adapter"
        adapter = op.cast(tape, x, variant.adapter_itemsize)
        if variant.lora.dropout:
            adapter = op.dropout(tape, adapter)
        rank = width(float(variant.lora.rank), WHOLE)
        if adapted is not None:
            low = op.product(tape, adapter, f"lora_a.{name}", rank, trained=True, name="adapter_input")
            part_of = op.product(tape, low, f"lora_b.{name}", adapted, trained=True, name="adapter_rank")
            result = op.add(tape, out, op.scale(tape, op.placed(tape, part_of, elements)))
            tape.part = part
            return result
        low = op.product(tape, adapter, f"lora_a.{name}", rank, trained=True, name="adapter_input")
        high = op.product(tape, low, f"lora_b.{name}", elements, trained=True, name="adapter_rank")
        result = op.cast(tape, op.add(tape, out, op.scale(tape, high)), out.itemsize)
        tape.part = part
        return result

    def norm(self, x: Value, rows: Width) -> Value:
        """The architecture's norm over `rows` rows a token."""
        self.tape.part, before = "norm" if self.tape.part != "attention" else "attention", self.tape.part
        out = getattr(self, f"_{self.facts.norm}")(x, rows)
        self.tape.part = before
        return out  # type: ignore[no-any-return]

    def _kernel(self, x: Value, rows: Width) -> Value:
        return op.layer_norm(self.tape, x, rows)

    def _kernel_wide(self, x: Value, rows: Width) -> Value:
        return op.cast(self.tape, op.layer_norm(self.tape, op.cast(self.tape, x, 4.0), rows), x.itemsize)

    def _normalised(self, wide: Value, rows: Width) -> Value:
        variance = op.mean(self.tape, op.square(self.tape, wide), rows)
        return op.by_rows(self.tape, wide, op.rsqrt(self.tape, op.shift(self.tape, variance)), "norm")

    def _rms(self, x: Value, rows: Width) -> Value:
        result = op.cast(self.tape, self._normalised(op.cast(self.tape, x, 4.0), rows), x.itemsize)
        return self._weighted(result)

    def _rms_wide(self, x: Value, rows: Width) -> Value:
        wide = self._normalised(op.cast(self.tape, x, 4.0), rows)
        return op.cast(self.tape, self._weighted(wide), x.itemsize)

    def _weighted(self, x: Value) -> Value:
        return op.weighted(self.tape, x, trained=self.trained) if self.model.norm_affine else x

    def _written_out(self, x: Value, rows: Width) -> Value:
        tape = self.tape
        wide = op.cast(tape, x, 4.0)
        mean = op.mean(tape, wide, rows)
        spread = op.mean(tape, op.square(tape, self._minus(wide, mean)), rows)
        scaled = op.by_rows(tape, self._minus(wide, mean), op.rsqrt(tape, op.shift(tape, spread)), "norm")
        return op.cast(tape, op.weighted(tape, scaled, trained=self.trained), x.itemsize)

    def _minus(self, x: Value, mean: Value) -> Value:
        """A row's mean taken off: the mean's gradient is a negated product before it is summed."""
        out = self.tape.new(x.width, x.itemsize, wanted=x.wanted)

        def backward(run: Any, g: Any) -> Any:
            run.new(x.size)
            return g[0], run.new(mean.size)

        self.tape.record((x, mean), (out,), (), backward, "centred")
        return out
