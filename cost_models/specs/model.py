"""The model, in Hugging Face's names. Every count, size and ledger is derived from these numbers, never from a name."""

from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from cost_models.errors import BrokenRule
from cost_models.specs.base import Spec

LARGEST: Final = 2**27
"""Largest accepted size: far above any published vocabulary or width, so that a larger number is a slip."""
MOST_LAYERS: Final = 10_000

Size: TypeAlias = Annotated[int, Field(strict=True, ge=1, le=LARGEST)]


class LayerKind(Spec):
    """What distinguishes one transformer layer from another in cost."""

    attention: Literal["full", "sliding"] = "full"
    mlp: Literal["dense", "moe"] = "dense"

    # Every table is looked up by kind: the two words alone, without pydantic's walk over all fields.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, LayerKind) and (self.attention, self.mlp) == (other.attention, other.mlp)

    def __hash__(self) -> int:
        return hash((self.attention, self.mlp))


class MoeSpec(Spec):
    """Mixture of experts in the layers whose `mlp` is `moe`."""

    num_experts: Size
    num_experts_per_tok: Size
    moe_intermediate_size: Size
    shared_expert_intermediate_size: int = Field(default=0, ge=0, le=LARGEST)
    """Width of all shared experts together; 0 for none."""
    shared_expert_gate: bool = False
    router_bias: bool = False
    """A trained bias of the router's linear map (GPT-OSS); a buffer that is no parameter does not count."""
    expert_bias: bool = False
    gated_experts: bool = True


class MlaSpec(Spec):
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1)."""

    q_lora_rank: Size | None = None
    """None: queries are projected directly."""
    kv_lora_rank: Size
    qk_nope_head_dim: Size
    qk_rope_head_dim: Size
    v_head_dim: Size


class ModelSpec(Spec):
    """A decoder-only transformer."""

    name: str = "custom"
    model_type: str = "custom"
    """As in config.json; chooses no formula, only names the family."""
    hidden_size: Size
    num_hidden_layers: Annotated[int, Field(strict=True, ge=1, le=MOST_LAYERS)]
    num_attention_heads: Size
    num_key_value_heads: Size
    head_dim: Size
    intermediate_size: Size
    vocab_size: Size
    tie_word_embeddings: bool = False
    max_position_embeddings: PositiveInt | None = None

    activation: str = "silu"
    gated_mlp: bool = True
    normalization: Literal["rmsnorm", "layernorm"] = "rmsnorm"
    norm_bias: bool = False
    norm_affine: bool = True
    """False: norms scale nothing and hold no weight (OPT with layer_norm_elementwise_affine false)."""
    norms_per_layer: int = Field(default=2, ge=0, le=16)
    """Norms of width hidden_size in a layer: 2, or 1 in one-norm parallel blocks, or 4 with post-norms (Gemma 2, 3)."""
    final_norm: bool = True
    embedding_norm: bool = False
    position_embedding: Literal["rotary", "learned", "alibi", "none"] = "rotary"
    position_embedding_rows: int = Field(default=0, ge=0, le=LARGEST + 2)
    """Rows of the learned position table, with any offset that the family adds (OPT: 2)."""
    parallel_residual: bool = False
    qkv_bias: bool = False
    attention_output_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    qk_norm: Literal["none", "head", "full"] = "none"
    """`head`: one weight of head_dim for q and one for k; `full`: over the whole projected width."""
    attention_sinks: bool = False
    embedding_projection: Size | None = None
    """Width of the embedding when it differs from hidden_size (OPT-350m)."""
    sliding_window: PositiveInt | None = None
    attention_softcap: bool = False
    logit_softcap: bool = False
    embedding_multiplier: bool = False
    rope_theta: PositiveFloat | None = None
    dtype: str | None = None
    """Of the published weights, as config.json states it (`dtype`, before transformers v5 `torch_dtype`)."""

    moe: MoeSpec | None = None
    mla: MlaSpec | None = None
    layers: tuple[LayerKind, ...] = ()
    """Kind of every layer in order; empty means all alike."""
    assumptions: tuple[str, ...] = ()
    """`key=value (why)` for everything a reader took from a convention because config.json left it open."""

    @model_validator(mode="after")
    def _rules(self) -> "ModelSpec":
        if self.num_attention_heads % self.num_key_value_heads:
            raise BrokenRuleValue(
                f"num_key_value_heads {self.num_key_value_heads} does not divide "
                f"num_attention_heads {self.num_attention_heads}"
            )
        if self.layers and len(self.layers) != self.num_hidden_layers:
            raise BrokenRuleValue(
                f"layers lists {len(self.layers)} kinds but num_hidden_layers is {self.num_hidden_layers}"
            )
        if any(kind.mlp == "moe" for kind in self.layers) and self.moe is None:
            raise BrokenRuleValue("layers names a moe layer but moe is missing")
        if self.moe is not None and self.moe.num_experts_per_tok > self.moe.num_experts:
            raise BrokenRuleValue(
                f"num_experts_per_tok {self.moe.num_experts_per_tok} exceeds num_experts {self.moe.num_experts}"
            )
        return self

    @property
    def layer_kinds(self) -> tuple[LayerKind, ...]:
        """The distinct kinds, in order of first appearance: the `kind` axis of every table."""
        kinds: list[LayerKind] = []
        previous: LayerKind | None = None
        for kind in self.layers or self.layer_sequence[:1]:
            if kind is not previous and kind not in kinds:
                kinds.append(kind)
            previous = kind
        return tuple(kinds)

    @property
    def layer_sequence(self) -> tuple[LayerKind, ...]:
        """Kind of each layer, bottom to top; length num_hidden_layers."""
        default = LayerKind(mlp="moe" if self.moe is not None else "dense")
        return self.layers or (default,) * self.num_hidden_layers

    @property
    def query_width(self) -> int:
        """Width of all projected queries together."""
        if self.mla is not None:
            return self.num_attention_heads * (self.mla.qk_nope_head_dim + self.mla.qk_rope_head_dim)
        return self.num_attention_heads * self.head_dim

    @property
    def key_value_width(self) -> int:
        """Width of all projected keys together (values alike; MLA has its own ledger)."""
        return self.num_key_value_heads * self.head_dim


class BrokenRuleValue(BrokenRule, ValueError):
    """A broken rule found inside pydantic validation, which only understands ValueError."""
