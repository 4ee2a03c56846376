"""The model of a measured row: a preset where its name is one, corrected by the numbers that the row prints.

A row that names no preset is built from its own numbers; what family it is of follows from its name, and else from the
width of its feed-forward: four times the hidden size is GPT's, anything else is gated as in Llama.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from cost_models.errors import SpecError
from cost_models.specs.model import LayerKind, MlaSpec, ModelSpec, MoeSpec
from planner.datasets.unusable import Unusable
from planner.datasets.vocabulary import flag
from planner.measurement import Measurement

_GPT: Final = {
    "activation": "gelu", "gated_mlp": False, "normalization": "layernorm", "norm_bias": True, "qkv_bias": True,
    "attention_output_bias": True, "mlp_bias": True, "position_embedding": "learned", "tie_word_embeddings": True,
}  # fmt: skip
_PLAIN: Final = {"activation": "gelu", "gated_mlp": False, "normalization": "layernorm"}
_NEOX: Final = _GPT | {"position_embedding": "rotary", "parallel_residual": True, "tie_word_embeddings": False}
_FAMILIES: Final[tuple[tuple[str, Mapping[str, Any]], ...]] = (
    (r"mpt", _PLAIN | {"tie_word_embeddings": True, "position_embedding": "alibi"}),
    (r"bloom", _GPT | {"position_embedding": "alibi", "embedding_norm": True}),
    (r"falcon", _PLAIN | {"norm_bias": True, "parallel_residual": True, "tie_word_embeddings": True}),
    (r"neox|pythia|stablelm(?!.*(?:2|3b-4e1t))|dolly", _NEOX),
    (r"phi-?(?:1|2)\b|phi-?1\.5", _NEOX | {"norms_per_layer": 1, "head_bias": True}),
    (r"qwen-?[12]", {"qkv_bias": True}),
    (r"gemma", {"tie_word_embeddings": True, "activation": "gelu"}),
    (r"llama|mistral|mixtral|qwen|yi|internlm|deepseek|smollm|baichuan|phi|olmo|granite|danube", {}),
    (r"gpt|opt|megatron|turing|mt-nlg|t-nlg", _GPT),
)
_MOST_LAYERS: Final = 100_000
"""Beyond any model; keeps a mistyped cell from filling the memory."""
_GPT2_VOCABULARY: Final = 50257
_MOE_NAMES: Final = re.compile(r"moe|\d+x\d+b|a\d+b|mixtral|deepseek-?v[23]")
_NOT_A_TRANSFORMER: Final = re.compile(
    r"mamba|hybrid|jamba|nemotron[_ -]?(?:h\b|3)|rwkv|bamba|(?:^|/)(?:t5|bert|retro|vision|vit|multimodal|mimo)"
)
"""Names of architectures with other layers than a decoder's, or with an encoder beside it."""


def squashed(name: str) -> str:
    """A model's name without organisation, remarks in brackets, and punctuation."""
    text = re.sub(r"\([^)]*\)", " ", name.lower()).rsplit("/", 1)[-1]
    return re.sub(r"[^a-z0-9]", "", text)


@cache
def _preset_names() -> Mapping[str, str]:
    from cost_models.hf_config.presets import presets

    index: dict[str, str] = {}
    every = presets().values()
    for preset in every:
        index[squashed(preset.name)] = preset.name
    for preset in every:
        for other in (*preset.aliases, *((preset.hub,) if preset.hub else ())):
            index.setdefault(squashed(other), preset.name)
    return index


_SUFFIXES: Final = ("", "base", "hf", "v01", "instruct")


@cache
def preset_of(name: str) -> ModelSpec | None:
    """The preset that a printed name means, or None."""
    from cost_models.hf_config.presets import model

    key, known = squashed(name), _preset_names()
    for suffix in _SUFFIXES:
        for candidate in (key + suffix, key.removesuffix(suffix) if suffix else key):
            if candidate in known:
                return model(known[candidate])
    return None


def model_of(row: Measurement) -> tuple[ModelSpec, tuple[str, ...]]:
    """The model of a row, and what had to be assumed for it.

    Raises:
        Unusable: neither a preset nor a full shape, or an architecture that is no transformer.
    """
    if row.facts.get("architecture") == "hybrid" or _NOT_A_TRANSFORMER.search(row.model.lower()):
        raise Unusable("architecture is not a plain transformer")
    if (row.layers or 0) > _MOST_LAYERS:
        raise Unusable(f"shape contradicts itself: more than {_MOST_LAYERS} layers")
    preset = preset_of(row.model)
    try:
        if preset is not None:
            return _corrected(row, preset)
        return _from_numbers(row)
    except SpecError as error:
        raise Unusable(f"shape contradicts itself: {error}") from error


def _corrected(row: Measurement, preset: ModelSpec) -> tuple[ModelSpec, tuple[str, ...]]:
    """The preset, with the row's own numbers where they differ."""
    stated = {
        "num_hidden_layers": row.layers, "hidden_size": row.hidden, "num_attention_heads": row.heads,
        "num_key_value_heads": row.kv_heads, "vocab_size": row.vocab,
    }  # fmt: skip
    if preset.moe is None:
        stated["intermediate_size"] = row.ffn_hidden
    changes: dict[str, Any] = {k: v for k, v in stated.items() if v is not None and v != getattr(preset, k)}
    if preset.mla is not None:
        changes.pop("num_key_value_heads", None)
    tied = flag(row, "tied")
    if tied is not None and tied != preset.tie_word_embeddings:
        changes["tie_word_embeddings"] = tied
    if not changes:
        return preset, ()
    if {"hidden_size", "num_attention_heads"} & changes.keys():
        return _from_numbers(row)
    if "num_hidden_layers" in changes and preset.layers:
        changes["layers"] = _first_layers(preset, changes["num_hidden_layers"])
    return ModelSpec.read(preset.model_dump() | changes), ()


def _first_layers(preset: ModelSpec, count: int) -> tuple[LayerKind, ...]:
    kinds = preset.layer_sequence
    return tuple(kinds[min(i, len(kinds) - 1)] for i in range(count))


def _from_numbers(row: Measurement) -> tuple[ModelSpec, tuple[str, ...]]:
    for key in ("layers", "hidden", "heads"):
        if getattr(row, key) is None:
            raise Unusable("shape not stated")
    layers, hidden, heads = int(row.layers or 0), int(row.hidden or 0), int(row.heads or 0)
    assumed: list[str] = []
    family = _family(row, hidden, assumed)
    head_dim = _whole(row, "head_dim") or hidden // heads
    vocab = row.vocab
    if vocab is None:
        vocab = _GPT2_VOCABULARY
        assumed.append(f"vocab: not stated, {vocab} of GPT-2 assumed")
    moe = _moe(row)
    ffn = _whole(row, "dense_ffn") or row.ffn_hidden
    if ffn is None:
        ffn = 4 * hidden
        assumed.append("ffn_hidden: not stated, 4 x hidden assumed")
    mla = _mla(row)
    spec = {
        "name": row.model or "custom", "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": heads if mla else row.kv_heads or heads, "head_dim": head_dim, "intermediate_size": ffn,
        "vocab_size": vocab, "moe": moe, "mla": mla, **family,
    }  # fmt: skip
    if spec.get("position_embedding") == "learned":
        spec["position_embedding_rows"] = row.seq_len or 0
    if moe is not None:
        spec["layers"] = _layer_kinds(row, layers)
    return ModelSpec.read(spec), tuple(assumed)


def _whole(row: Measurement, fact: str) -> int | None:
    text = row.facts.get(fact, "")
    return int(text) if text.isdecimal() and int(text) > 0 else None


def _family(row: Measurement, hidden: int, assumed: list[str]) -> dict[str, Any]:
    name = row.model.lower()
    found = next((dict(features) for pattern, features in _FAMILIES if re.search(pattern, name)), None)
    if found is None:
        gpt = row.ffn_hidden is None or row.ffn_hidden == 4 * hidden
        found = dict(_GPT) if gpt else {}
        assumed.append(
            f"family: not known from the name, {'GPT' if gpt else 'Llama'} assumed from the feed-forward's width"
        )
    for fact, key in (("tied", "tie_word_embeddings"), ("gated", "gated_mlp")):
        stated = flag(row, fact)
        if stated is not None:
            found[key] = stated
    if re.search(r"qk_?(?:layer)?norm", name):
        found["qk_norm"] = "head"
    for fact in ("activation", "normalization", "position_embedding"):
        if fact in row.facts:
            found[fact] = row.facts[fact]
    return found


def _moe(row: Measurement) -> MoeSpec | None:
    experts = _whole(row, "experts")
    if experts is None:
        if _MOE_NAMES.search(row.model.lower()):
            raise Unusable("experts not stated")
        return None
    width = _whole(row, "expert_ffn") or row.ffn_hidden
    chosen = _whole(row, "experts_per_token")
    if width is None or chosen is None:
        raise Unusable("experts not stated")
    gated = flag(row, "gated")
    return MoeSpec.read(
        {
            "num_experts": experts,
            "num_experts_per_tok": chosen,
            "moe_intermediate_size": width,
            "shared_expert_intermediate_size": _whole(row, "shared_expert_ffn") or 0,
            "gated_experts": "gpt" not in row.model.lower() if gated is None else gated,
        }
    )


def _mla(row: Measurement) -> MlaSpec | None:
    rank = _whole(row, "kv_lora_rank")
    if rank is None:
        return None
    nope = _whole(row, "qk_nope_head_dim")
    value = _whole(row, "v_head_dim") or nope
    if nope is None or value is None:
        raise Unusable("MLA widths not stated")
    return MlaSpec.read(
        {
            "q_lora_rank": _whole(row, "q_lora_rank"),
            "kv_lora_rank": rank,
            "qk_nope_head_dim": nope,
            "qk_rope_head_dim": _whole(row, "qk_rope_head_dim") or nope // 2,
            "v_head_dim": value,
        }
    )


def _layer_kinds(row: Measurement, layers: int) -> tuple[LayerKind, ...]:
    rule, _, count = row.facts.get("moe_layers", "all").partition(":")
    number = int(count) if count.isdecimal() and int(count) > 0 else layers
    if rule == "every":
        return tuple(LayerKind(mlp="moe" if (i + 1) % number == 0 else "dense") for i in range(layers))
    mixtures = min(number, layers) if rule == "last" else layers
    if rule == "all" and "dense_ffn" in row.facts:
        mixtures = layers - 1
    return tuple(LayerKind(mlp="dense" if i < layers - mixtures else "moe") for i in range(layers))
