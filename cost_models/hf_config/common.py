"""What every family shares: the spellings of the core sizes, head width, rope and dtype, and the kind of each layer."""

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

from cost_models.errors import BrokenRule, SpecError
from cost_models.hf_config.fields import Fields
from cost_models.specs.model import MOST_LAYERS, LayerKind, ModelSpec

Reader: TypeAlias = Callable[[Fields], ModelSpec]

HIDDEN: Final = ("hidden_size", "n_embd", "n_embed", "d_model")
LAYERS: Final = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HEADS: Final = ("num_attention_heads", "n_head", "n_heads", "num_heads")
KEY_VALUE_HEADS: Final = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads")
INTERMEDIATE: Final = ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size", "inner_hidden_size")
POSITIONS: Final = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length")
ACTIVATION: Final = ("hidden_act", "hidden_activation", "activation_function", "activation")
EXPERTS: Final = ("num_experts", "num_local_experts", "n_routed_experts")

_ATTENTION: Final = {"full_attention": "full", "sliding_attention": "sliding", "chunked_attention": "sliding"}


def hidden_size(fields: Fields) -> int:
    """Width of the residual stream."""
    return fields.integer(*HIDDEN)


def num_hidden_layers(fields: Fields) -> int:
    """Number of layers."""
    return fields.integer(*LAYERS, most=MOST_LAYERS)


def num_attention_heads(fields: Fields) -> int:
    """Number of query heads."""
    return fields.integer(*HEADS)


def key_value_heads(fields: Fields, default: int | None = None) -> int:
    """Key-value heads; absent means the class `default`; null, or no default, as many as query heads."""
    if default is None or fields.mentions("num_key_value_heads"):
        return fields.integer(*KEY_VALUE_HEADS, default=num_attention_heads(fields))
    return fields.size(*KEY_VALUE_HEADS, default=default)


def head_width(fields: Fields, default: int | None = None) -> int:
    """`head_dim`; absent means the class `default`, null or no default hidden_size over heads.

    Raises:
        BrokenRule: the heads do not divide hidden_size.
    """
    if default is not None and not fields.mentions("head_dim"):
        return fields.size("head_dim", default=default)
    stated = fields.optional_integer("head_dim")
    if stated is not None:
        return stated
    hidden, heads = hidden_size(fields), num_attention_heads(fields)
    if hidden % heads:
        raise BrokenRule(
            f"{fields.where}: {fields.prefix}num_attention_heads {heads} does not divide hidden_size {hidden} "
            "and head_dim is not stated"
        )
    return hidden // heads


def rope_theta(fields: Fields) -> float | None:
    """`rope_theta` (transformers v4) or `rope_parameters.rope_theta` (v5), of full attention where kinds differ."""
    parameters = fields.nested("rope_parameters")
    if parameters.has("full_attention"):
        parameters = parameters.nested("full_attention")
    for place, key in ((parameters, "rope_theta"), (fields, "rope_theta"), (fields, "rotary_emb_base")):
        if (theta := place.optional_number(key)) is not None:
            return theta
    return None


def dtype(fields: Fields) -> str | None:
    """`dtype` (transformers v5) or `torch_dtype` (v4)."""
    return fields.text("dtype", "torch_dtype", default="").removeprefix("torch.") or None


def attention_kinds(fields: Fields, is_sliding: Callable[[int], bool]) -> list[str]:
    """`full` or `sliding` for each layer: `layer_types` (transformers v5), else the family's own rule.

    Raises:
        SpecError: an attention of another kind, or a list of the wrong length.
    """
    layers = num_hidden_layers(fields)
    stated = fields.sequence("layer_types")
    if stated is None:
        return ["sliding" if is_sliding(i) else "full" for i in range(layers)]
    if len(stated) != layers:
        raise BrokenRule(
            f"{fields.where}: {fields.prefix}layer_types lists {len(stated)} layers but num_hidden_layers is {layers}"
        )
    for kind in stated:
        if not isinstance(kind, str) or kind not in _ATTENTION:
            raise fields.error("layer_types", kind, f"is not one of {', '.join(_ATTENTION)}")
    return [_ATTENTION[kind] for kind in stated]


def layer_kinds(attention: Iterable[str], is_moe: Callable[[int], bool] | None = None) -> tuple[LayerKind, ...]:
    """Combine the attention of each layer with its feed-forward kind; all of the plain kind is the empty tuple."""
    kinds = {
        (a, m): LayerKind.model_validate({"attention": a, "mlp": m})
        for a in ("full", "sliding")
        for m in ("dense", "moe")
    }
    sequence = tuple(kinds[a, "moe" if is_moe is not None and is_moe(i) else "dense"] for i, a in enumerate(attention))
    plain = kinds["full", "dense" if is_moe is None else "moe"]
    return () if all(kind == plain for kind in sequence) else sequence


def sliding_layers(fields: Fields, window: int | None, is_sliding: Callable[[int], bool]) -> dict[str, Any]:
    """`sliding_window` and `layers` of a dense model."""
    kinds = attention_kinds(fields, lambda i: window is not None and is_sliding(i))
    if "sliding" in kinds and window is None:
        raise fields.missing("sliding_window", "layer_types names sliding attention")
    return {"sliding_window": window if "sliding" in kinds else None, "layers": layer_kinds(kinds)}


def decoder(fields: Fields, *, tied: bool = False, **facts: Any) -> ModelSpec:
    """A `ModelSpec` from the core sizes, with the family's `facts` on top.

    `tied` is the default of `tie_word_embeddings` in the family's config class. A fact overrides what is read.

    Raises:
        MissingKey: a core size is absent.
        SpecError: a value breaks a rule.
    """
    core: dict[str, Callable[[], Any]] = {
        "hidden_size": lambda: hidden_size(fields),
        "num_hidden_layers": lambda: num_hidden_layers(fields),
        "num_attention_heads": lambda: num_attention_heads(fields),
        "num_key_value_heads": lambda: key_value_heads(fields),
        "head_dim": lambda: head_width(fields),
        "intermediate_size": lambda: fields.integer(*INTERMEDIATE),
        "vocab_size": lambda: fields.integer("vocab_size"),
        "max_position_embeddings": lambda: next(
            (n for key in POSITIONS if (n := fields.optional_integer(key, most=2**40)) is not None), None
        ),
        "tie_word_embeddings": lambda: fields.flag("tie_word_embeddings", default=tied),
        "activation": lambda: fields.text(*ACTIVATION, default="silu"),
        "rope_theta": lambda: rope_theta(fields),
        "dtype": lambda: dtype(fields),
    }
    values = facts | {name: read() for name, read in core.items() if name not in facts}
    try:
        return ModelSpec.read(values | {"assumptions": tuple(fields.assumed)})
    except SpecError as error:
        found = SpecError(f"{fields.where}: {fields.prefix}{error}")
        # Its keys may be spelt otherwise in the file: they are named, not pointed at.
        found.places = tuple(((), f"{fields.prefix}{'.'.join(keys)}: {text}") for keys, text in error.places)
        raise found from error
