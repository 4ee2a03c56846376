"""What transformers' code of an architecture does that its config.json does not say, and that decides memory."""

from typing import Literal, TypeAlias

from pydantic import PositiveFloat

from cost_models.specs.base import Spec

Norm: TypeAlias = Literal["kernel", "rms", "rms_wide", "kernel_wide", "written_out"]


class ArchitectureFacts(Spec):
    """Facts of one or several `model_type`s, read from their modules' code."""

    model_types: tuple[str, ...]
    norm: Norm = "rms"
    """`kernel`: torch's layer_norm in the stream's dtype; `kernel_wide`: the same on an fp32 copy; `rms`: upcast, then
    the weight in the stream's dtype; `rms_wide`: the weight in fp32 too; `written_out`: a LayerNorm of elementary
    operators in fp32."""
    by_numbers: bool = False
    """One module for all families: norms and their places follow from the model's numbers."""
    repeated_heads: bool = False
    """Keys and values are copied for every query head before fused attention."""
    padded_adapters: bool = False
    """An adapter of part of a fused product has factors of its own for each projection, and is copied into zeros, for
    which backward keeps it."""
    projections: Literal["separate", "fused"] = "separate"
    """`fused`: queries, keys and values are views of one product."""
    values_copied: bool = False
    """Values of a fused product are copied out of it before attention."""
    fused_gate: bool = False
    """The gate and the up projection are views of one product."""
    rotary: Literal["half", "interleaved", "halves", "complex", "wide_interleaved", "pairs", "none"] = "half"
    """How positions are turned: by `rotate_half`, by even and odd elements, by two halves, as complex numbers."""
    rotary_share: PositiveFloat = 1.0
    """Share of a head's width that is turned."""
    concatenated_rotary: bool = False
    """Turned queries are concatenated: attention's output has its heads outside and is copied for the projection."""
    ungrouped: bool = False
    """Fused attention is called without grouped heads, so that fewer key heads leave only the spelled-out kernel."""
    softmax: Literal["wide", "narrow", "wide_operands", "sinks"] = "wide"
    """Of written-out attention: fp32 result cast back; in the stream's dtype; queries and keys cast to fp32 before;
    with sinks in the stream's dtype."""
    residual: Literal["pre", "post", "sandwich", "parallel"] = "pre"
    """Where norms stand: before each block; after it; both; before two blocks side by side."""
    scaled_residual: bool = False
    router: Literal["softmax", "softmax_wide", "sigmoid_wide", "top_softmax", "softmax_kept"] = "softmax"
    """Router probabilities: fp32 softmax cast back; an fp32 router with softmax or sigmoid; softmax of the chosen;
    fp32 throughout."""
    normalised_routes: bool = True
    """The chosen probabilities are divided by their sum."""
    adapted_experts: bool = False
    """peft puts adapters beside the fused expert tensors and the router, and then none beside dense feed-forwards,
    whose names count as the experts'. The adapted tensors are expanded whole for their product."""
    clamped_gate: bool = False
    always_masked: bool = False
    """Fused attention gets a mask even without padding."""
    mask_buffers: Literal["none", "model", "layer"] = "none"
    """Causal masks of the longest length, a byte a pair, kept as buffers."""
    mlp_gelu: Literal["kernel", "own_function"] = "kernel"
    scaled_logits: bool = False
    scaled_embedding: bool = False
    attention: tuple[Literal["sdpa", "eager"], ...] = ("sdpa", "eager")
    """Implementations that the code offers."""
    source: str
