"""Saved tensors of Hugging Face modules in eager PyTorch. [bytes per token and rank]

The layer is written down in `blocks`; `tape` says what forward keeps and what is alive in backward. Here both become
numbers of every candidate: candidates share few variants of a layer (dtype, autocast, attention), each a tape of its
own, whose widths are then divided by each candidate's degrees.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from cost_models.arrays import choose
from cost_models.memory.activations import ALWAYS, ONLY_SELECTIVE, UNLESS_SELECTIVE, Moment, Saved
from cost_models.memory.architectures import architecture
from cost_models.memory.blocks import Blocks, Variant
from cost_models.memory.layer import written
from cost_models.memory.setting import Setting, once
from cost_models.memory.sharding import is_target, local
from cost_models.memory.tape import SCORE, SEQUENCE, TENSOR, Alive, Width, width
from cost_models.parameters import layer_weights
from cost_models.specs.model import LayerKind, ModelSpec

_KEPT_BY_SELECTIVE = frozenset({"router"})


@dataclass(frozen=True, slots=True, eq=False)
class Written:
    """What a variant of a layer's tape says."""

    saved: dict[tuple[str, str], Width]
    """Kept by forward, by part and operator."""
    moments: tuple[Alive, ...]
    """Moments of backward, less what forward keeps."""


@lru_cache(maxsize=256)
def _written(model: ModelSpec, kind: LayerKind, variant: Variant) -> Written:
    tape, _, output = written(model, architecture(model), variant, kind)
    saved: dict[tuple[str, str], Width] = {}
    for storage in tape.saved():
        key = (storage.part, storage.operator)
        saved[key] = saved.get(key, 0.0) + storage.size
    total = sum(saved.values())
    moments = tape.backward(output)
    return Written(saved, tuple(Alive(size=m.size - total, weights=m.weights, casts=m.casts) for m in moments))


@once
def _variants(setting: Setting, kind: LayerKind) -> tuple[tuple[Any, Variant], ...]:
    """The variants among the candidates, each with the candidates that it is for."""
    lora, model = setting.adapters, setting.model
    masked = _masked(setting, model.sliding_window if kind.attention == "sliding" else None)
    targets = frozenset(w.name for w in layer_weights(model, kind) if lora is not None and is_target(w, lora))
    wide = lora is not None and lora.adapter_dtype == "fp32"
    adapters = choose(wide, 4.0, setting.activation)
    several = setting.materialised & (np.asarray(setting.strategy.micro_batch_size) > 1)
    columns = (setting.activation, setting.autocast, setting.materialised, adapters, several)
    numbers = [choose(np.isnan(column), 0.0, column) for column in columns]
    code = np.asarray(sum(number * 16.0**i for i, number in enumerate(numbers)))  # each is a whole number below 16
    found = []
    for value in np.unique(code) if code.ndim else [code[()]]:
        itemsize, autocast, materialised, adapter, several_samples = (value // 16.0**i % 16.0 for i in range(5))
        variant = Variant(
            itemsize=float(itemsize) or 2.0,
            autocast=bool(autocast > 0),
            materialised=bool(materialised > 0),
            masked=masked,
            dropout=(setting.job.training.dropout or 0.0) > 0,
            lora=lora,
            several_samples=bool(several_samples > 0),
            on_cpu=setting.job.device.kind == "cpu",
            targets=targets,
            adapter_itemsize=float(adapter),
        )
        found.append((code == value, variant))
    return tuple(found)


@once
def _bases(setting: Setting) -> tuple[Any, ...]:
    """What each basis of a width is worth for each candidate."""
    t, s = setting.tensor, setting.strategy
    length, imbalance = float(setting.job.training.sequence_length), setting.job.training.expert_imbalance
    shards = np.minimum(t, setting.model.num_key_value_heads)
    return (
        1.0, 1.0 / setting.sequence_shards, 1.0 / t, 1.0 / shards, imbalance / s.expert_tensor_parallel, imbalance,
        length / t, length,
    )  # fmt: skip


def _bytes(setting: Setting, size: Width) -> Any:
    """Bytes per token of every candidate."""
    result: Any = 0.0
    for amount, basis in zip(size, _bases(setting), strict=True):
        if amount:
            result = result + float(amount) * basis
    return result


@once
def _which(setting: Setting, kind: LayerKind) -> Any:
    """Each candidate's variant, by its place among them."""
    return sum(np.asarray(mask, dtype=np.int64) * i for i, (mask, _) in enumerate(_variants(setting, kind)))


def _bytes_of_each(setting: Setting, kind: LayerKind, sizes: list[Width]) -> Any:
    """Bytes per token of every candidate, from the widths of its variant."""
    if len(sizes) == 1:
        return _bytes(setting, sizes[0])
    result: Any = 0.0
    for amounts, basis in zip(np.stack(sizes).T, _bases(setting), strict=True):
        if (amounts == amounts[0]).all():
            result = result + float(amounts[0]) * basis if amounts[0] else result
        else:
            result = result + amounts[_which(setting, kind)] * basis
    return result


@once
def shared_mask(setting: Setting) -> Any:
    """Masks shared by all layers of a kind: floats for written-out attention, booleans for fused. [bytes per token]

    Source: transformers `masking_utils.{sdpa_mask,eager_mask}`.
    """
    length = float(setting.job.training.sequence_length)
    total: Any = 0.0
    for attention in dict.fromkeys(kind.attention for kind in setting.kinds):
        window = setting.model.sliding_window if attention == "sliding" else None
        # Without padding one mask serves every sample.
        samples = 1.0 if setting.job.training.padded else 1.0 / np.asarray(setting.strategy.micro_batch_size)
        fused = length * samples if _masked(setting, window) else 0.0
        total = total + choose(setting.materialised, setting.activation * length, fused)
    return total


@once
def mask_buffer_bytes(setting: Setting) -> Any:
    """Causal masks that a model keeps as buffers, over all layers of a stage. [bytes]"""
    kind, longest = architecture(setting.model).mask_buffers, setting.model.max_position_embeddings or 0
    layers = setting.model.num_hidden_layers / np.asarray(setting.strategy.pipeline_parallel)
    count: Any = {"none": 0.0, "model": 1.0, "layer": layers}[kind]
    return choose(setting.eager, count * float(longest) ** 2, 0.0)


def _masked(setting: Setting, window: int | None) -> bool:
    training = setting.job.training
    always = architecture(setting.model).always_masked
    return training.padded or always or (window is not None and training.sequence_length >= window)


@once
def layer(setting: Setting, kind: LayerKind) -> tuple[Saved, ...]:
    """Every saved tensor of one layer."""
    saved = [_written(setting.model, kind, variant).saved for _, variant in _variants(setting, kind)]
    nothing = width(0.0, SEQUENCE)
    keys = dict.fromkeys(key for each in saved for key in each)
    sizes = {key: _bytes_of_each(setting, kind, [each.get(key, nothing) for each in saved]) for key in keys}
    entries = [
        Saved(
            operator=operator, part=part, bytes_per_token=value,
            modes=ALWAYS if part in _KEPT_BY_SELECTIVE else UNLESS_SELECTIVE,
        )
        for (part, operator), value in sizes.items()
    ]  # fmt: skip
    return (*entries, *_operators_kept(setting, kind))


def _operators_kept(setting: Setting, kind: LayerKind) -> list[Saved]:
    """Per-operator selective recompute keeps every second matrix product and the attention kernel.

    Source: torchtitan `distributed/activation_checkpoint.py` (selective, "op"): 2h + 2q + 2kv + 2f + 2h beside the
    kernel's.
    """
    model, b, t, s = setting.model, setting.activation, setting.tensor, setting.sequence_shards
    inner = model.intermediate_size
    if kind.mlp == "moe" and model.moe is not None:
        inner = model.moe.num_experts_per_tok * model.moe.moe_intermediate_size
    heads = model.num_attention_heads
    kv = model.key_value_width / np.minimum(t, model.num_key_value_heads)
    output = (heads * model.mla.v_head_dim if model.mla is not None else model.query_width) / t
    kept = {
        "input": ("mlp", 2 * b * model.hidden_size / s),
        "up": ("mlp", b * inner / t),
        "query_key": ("attention", b * (model.query_width / t + kv)),
        "attention_output": ("attention", b * output + 4.0 * heads / t),
    }
    return [
        Saved(operator=name, part=part, bytes_per_token=value, modes=ONLY_SELECTIVE)
        for name, (part, value) in kept.items()
    ]


@lru_cache(maxsize=256)
def _head_written(model: ModelSpec, variant: Variant) -> tuple[Width, Width]:
    """What the final norm keeps, and what norm and head keep together."""
    sizes = []
    for with_head in (False, True):
        blocks = Blocks(model, architecture(model), variant)
        x = blocks.tape.new(width(model.hidden_size, SEQUENCE), 4.0 if variant.autocast else variant.itemsize)
        out = blocks.norm(x, width(1.0, SEQUENCE)) if model.final_norm else x
        if with_head:
            blocks.linear(out, "lm_head", width(model.vocab_size, TENSOR))
        sizes.append(sum((storage.size for storage in blocks.tape.saved()), width(0.0, SEQUENCE)))
    return sizes[0], sizes[1]


@lru_cache(maxsize=256)
def _unneeded(model: ModelSpec, kind: LayerKind, variant: Variant) -> Width:
    """What a layer does not keep when nothing below it is trained."""
    sizes = []
    for first in (False, True):
        tape, _, _ = written(model, architecture(model), variant, kind, first=first)
        sizes.append(sum((storage.size for storage in tape.saved()), width(0.0, SEQUENCE)))
    return sizes[0] - sizes[1]


@once
def unneeded_in_first(setting: Setting) -> Any:
    """What the first layer does not keep when the embedding is frozen. [bytes per token]"""
    kind = setting.model.layer_sequence[0]
    result: Any = 0.0
    for mask, variant in _variants(setting, kind):
        result = choose(mask, _bytes(setting, _unneeded(setting.model, kind, variant)), result)
    return result


def _of_head(setting: Setting, index: int) -> Any:
    result: Any = 0.0
    for mask, variant in _variants(setting, setting.kinds[-1]):
        result = choose(mask, _bytes(setting, _head_written(setting.model, variant)[index]), result)
    return result


@once
def norm_kept(setting: Setting) -> Any:
    """What one norm of the stream keeps, its input included. [bytes per token]"""
    return _of_head(setting, 0)


@once
def head_kept(setting: Setting) -> Any:
    """What the final norm and the head keep, logits apart. [bytes per token]"""
    return _of_head(setting, 1)


@once
def backward_moments(setting: Setting, kind: LayerKind) -> tuple[Moment, ...]:
    """The moments of a layer's backward at which memory may peak, the i-th of every candidate's variant together."""
    variants = [(mask, _moments(setting, kind, variant)) for mask, variant in _variants(setting, kind)]
    found = []
    for i in range(max(len(alive) for _, alive in variants)):
        alive = [(mask, moments[min(i, len(moments) - 1)]) for mask, moments in variants]
        size = _bytes_of_each(setting, kind, [each.size - _scores(each.size) for _, each in alive])
        scores = _bytes_of_each(setting, kind, [_scores(each.size) for _, each in alive])
        own = _parameters_of_each(setting, kind, [(mask, each.weights) for mask, each in alive])
        copied = _parameters_of_each(setting, kind, [(mask, each.casts) for mask, each in alive])
        found.append(Moment(name=str(i), added=size, scores=scores, own=own, copied=copied))
    return tuple(found)


def _moments(setting: Setting, kind: LayerKind, variant: Variant) -> tuple[Alive, ...]:
    return _outermost(setting.model, kind, variant, setting.job.training.sequence_length)


@lru_cache(maxsize=256)
def _outermost(model: ModelSpec, kind: LayerKind, variant: Variant, length: int) -> tuple[Alive, ...]:
    """Moments that are the largest for some number of tokens: the upper hull over bytes a token and gradients.

    One hull for whole tensors and one for tensors split in eight.
    """
    moments = _written(model, kind, variant).moments
    counts = {w.name: w.count for w in layer_weights(model, kind)}
    own = [sum(counts.get(name, 0) for name in _expanded(model, m.weights)) for m in moments]
    kept: set[int] = set()
    for shards in (1.0, 8.0):
        worth = np.array([1, 1, 1 / shards, 1 / shards, 1, 1, length / shards, length])
        kept |= _hull([(float(m.size @ worth), float(w)) for m, w in zip(moments, own, strict=True)])
    kept |= {i for i, m in enumerate(moments) if m.casts and i in kept}
    return tuple(moments[i] for i in sorted(kept))


def _hull(points: list[tuple[float, float]]) -> set[int]:
    """Indices of the points that maximise x + c y for some c >= 0."""
    order = sorted(range(len(points)), key=lambda i: (-points[i][0], -points[i][1]))
    hull: list[int] = []
    for i in order:
        if hull and points[i][1] <= points[hull[-1]][1]:
            continue
        while len(hull) > 1 and not _above(points[hull[-2]], points[hull[-1]], points[i]):
            hull.pop()
        hull.append(i)
    return set(hull)


def _above(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    """Whether b lies outside the line from a to c."""
    return (b[0] - a[0]) * (c[1] - a[1]) > (c[0] - a[0]) * (b[1] - a[1])


def _parameters_of_each(setting: Setting, kind: LayerKind, names: list[tuple[Any, tuple[str, ...]]]) -> Any:
    """Parameters in the weights that each candidate's variant names."""
    result = _parameters(setting, kind, names[0][1])
    for mask, named in names[1:]:
        if named != names[0][1]:
            result = choose(mask, _parameters(setting, kind, named), result)
    return result


@once
def _parameters(setting: Setting, kind: LayerKind, names: tuple[str, ...]) -> Any:
    """Parameters of a rank in some weights of a layer, none of which is trained beside adapters."""
    found = _expanded(setting.model, names)
    weights = [w for w in layer_weights(setting.model, kind) if w.name in found]
    return local(setting, weights) if weights and setting.adapters is None else 0.0


def _scores(size: Width) -> Width:
    """What of a width are attention scores."""
    return width(float(size[SCORE]), SCORE)


def _expanded(model: ModelSpec, names: tuple[str, ...]) -> frozenset[str]:
    """Names of all the weights that a product's name stands for."""
    facts, found = architecture(model), set(names)
    if facts.projections == "fused" and "q_proj" in found:
        found |= {"k_proj", "v_proj"}
    for prefix in ("", "shared_expert."):
        if facts.fused_gate and f"{prefix}gate_proj" in found:
            found.add(f"{prefix}up_proj")
    if "experts.up_proj" in found:
        found.add("experts.gate_proj")
    return frozenset(found)
