"""Saved tensors of Hugging Face modules in eager PyTorch. [bytes per token and rank]

The layer is written down in `blocks`; `tape` says what forward keeps and what is alive in backward. Here both become
numbers of every candidate: candidates share few variants of a layer (dtype, autocast, attention), each a tape of its
own, whose widths are then divided by each candidate's degrees.
"""

from typing import Any

import numpy as np

from cost_models.arrays import choose, somewhere
from cost_models.memory.activations import ALWAYS, NONE, ONLY_SELECTIVE, UNLESS_SELECTIVE, Moment, Saved, saved_bytes
from cost_models.memory.architectures import architecture
from cost_models.memory.blocks import Variant
from cost_models.memory.setting import Setting, once
from cost_models.memory.sharding import is_target, local
from cost_models.memory.tape import SCORE, SEQUENCE, Alive, Width, width
from cost_models.memory.writing import fused_with, head_written, layer_written, outermost, unneeded
from cost_models.parameters import layer_weights
from cost_models.specs.model import LayerKind

_KEPT_BY_SELECTIVE = frozenset({"router"})


@once
def _variants(setting: Setting, kind: LayerKind) -> tuple[tuple[Any, Variant], ...]:
    """The variants among the candidates, each with the candidates that it is for."""
    lora, model = setting.adapters, setting.model
    masked = _masked(setting, model.sliding_window if kind.attention == "sliding" else None)
    facts = architecture(model)
    targets = frozenset(w.name for w in layer_weights(model, kind) if lora is not None and is_target(w, lora, facts))
    wide = lora is not None and lora.adapter_dtype == "fp32"
    adapters = choose(wide, 4.0, setting.activation)
    several = setting.materialised & (setting.column("micro_batch_size") > 1)
    kept = setting.fact("kept_frozen_inputs") * (1.0 if setting.quantized else 0.0)
    columns = (setting.activation, setting.autocast, setting.materialised, adapters, several, kept, setting.flat)
    numbers = [choose(np.isnan(column), 0.0, column) for column in columns]
    code = np.asarray(sum(number * 16.0**i for i, number in enumerate(numbers)))  # each is a whole number below 16
    found = []
    for value in np.unique(code) if code.ndim else [code[()]]:
        digits = (value // 16.0**i % 16.0 for i in range(len(columns)))
        itemsize, autocast, materialised, adapter, several_samples, keeps, flat = digits
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
            keeps_inputs=bool(keeps > 0),
            all_trained=lora is not None and bool(flat > 0),
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
        samples = 1.0 if setting.job.training.padded else 1.0 / setting.column("micro_batch_size")
        fused = length * samples if _masked(setting, window) else 0.0
        total = total + choose(setting.materialised, setting.activation * length, fused)
    return total


@once
def mask_buffer_bytes(setting: Setting) -> Any:
    """Causal masks that a model keeps as buffers, over all layers of a stage. [bytes]"""
    kind, longest = architecture(setting.model).mask_buffers, setting.model.max_position_embeddings or 0
    layers = setting.model.num_hidden_layers / setting.column("pipeline_parallel")
    count: Any = {"none": 0.0, "model": 1.0, "layer": layers}[kind]
    return choose(setting.eager, count * float(longest) ** 2, 0.0)


def _masked(setting: Setting, window: int | None) -> bool:
    training = setting.job.training
    always = architecture(setting.model).always_masked
    return training.padded or always or (window is not None and training.sequence_length >= window)


@once
def layer(setting: Setting, kind: LayerKind) -> tuple[Saved, ...]:
    """Every saved tensor of one layer."""
    saved = [layer_written(setting.model, kind, variant).saved for _, variant in _variants(setting, kind)]
    nothing = width(0.0, SEQUENCE)
    keys = dict.fromkeys(key for each in saved for key in each)
    sizes = {key: _bytes_of_each(setting, kind, [each.get(key, nothing) for each in saved]) for key in keys}
    held = setting.fact("held_frozen_inputs")
    entries = [
        Saved(
            operator=operator, part=part, bytes_per_token=value * held if part == "held" else value,
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


@once
def unneeded_in_first(setting: Setting) -> Any:
    """What the first layer does not keep when the embedding is frozen. [bytes per token]"""
    kind = setting.model.layer_sequence[0]
    result: Any = 0.0
    for mask, variant in _variants(setting, kind):
        result = choose(mask, _bytes(setting, unneeded(setting.model, kind, variant)), result)
    return result


def _of_head(setting: Setting, index: int) -> Any:
    result: Any = 0.0
    for mask, variant in _variants(setting, setting.kinds[-1]):
        result = choose(mask, _bytes(setting, head_written(setting.model, variant)[index]), result)
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
def norm_backward(setting: Setting) -> Any:
    """The most that is alive in the final norm's backward, what it keeps included. [bytes per token]"""
    return _of_head(setting, 2)


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
        passed = _expert_parameters(setting, kind, alive[0][1].passed)
        passed = passed - _expert_parameters(setting, kind, alive[0][1].released)
        found.append(Moment(name=str(i), added=size, scores=scores, own=own, copied=copied, passed=passed))
    return (*found, _flattened(setting, kind)) if somewhere(setting.flat) else tuple(found)


def _flattened(setting: Setting, kind: LayerKind) -> Moment:
    """The end of a layer's backward, where the gradients of its weights are joined to that of the flat parameter.

    Source: torch autograd, the derivative of `split` (a `cat`); `distributed/fsdp/_flat_param.py`, _get_unflat_views.
    """
    kept = saved_bytes(layer(setting, kind), NONE) - saved_bytes(layer(setting, kind), NONE, "boundary")
    added = setting.activation * setting.model.hidden_size / setting.sequence_shards - kept
    twice = 2.0 * local(setting, layer_weights(setting.model, kind)) * setting.flat
    return Moment(name="flattened", added=choose(setting.flat, added, 0.0), own=twice)


@once
def repeat_moments(setting: Setting, kind: LayerKind) -> tuple[Moment, ...]:
    """The moment of a repeated forward at which memory may peak before its backward starts."""
    added: Any = None
    for mask, variant in _variants(setting, kind):
        largest: Any = None
        for size in layer_written(setting.model, kind, variant).repeats:
            here = _bytes(setting, size)
            largest = here if largest is None else np.maximum(largest, here)
        added = largest if added is None else choose(mask, largest, added)
    return (Moment(name="repeat", added=added),)


@once
def forward_bytes(setting: Setting, kind: LayerKind, *, keeps: bool) -> Any:
    """The most that a layer's forward holds beside its input, in excess of what it keeps. [bytes per token]"""
    found: Any = 0.0
    for mask, variant in _variants(setting, kind):
        layer = layer_written(setting.model, kind, variant)
        largest: Any = 0.0
        for size in layer.excess if keeps else layer.forward:
            largest = np.maximum(largest, _bytes(setting, size))
        found = choose(mask, largest, found)
    return found


def _moments(setting: Setting, kind: LayerKind, variant: Variant) -> tuple[Alive, ...]:
    return outermost(setting.model, kind, variant, setting.job.training.sequence_length)


def _parameters_of_each(setting: Setting, kind: LayerKind, names: list[tuple[Any, tuple[str, ...]]]) -> Any:
    """Parameters in the weights that each candidate's variant names."""
    result = _parameters(setting, kind, names[0][1])
    for mask, named in names[1:]:
        if named != names[0][1]:
            result = choose(mask, _parameters(setting, kind, named), result)
    return result


@once
def _parameters(setting: Setting, kind: LayerKind, names: tuple[str, ...]) -> Any:
    """Parameters with gradients in some weights of a layer: none beside adapters, but for those of a flat one."""
    found = fused_with(setting.model, *names)
    weights = [w for w in layer_weights(setting.model, kind) if w.name in found]
    if not weights or (setting.adapters is not None and not somewhere(setting.flat)):
        return 0.0
    return local(setting, weights) * (1.0 if setting.adapters is None else setting.flat)


@once
def _expert_parameters(setting: Setting, kind: LayerKind, names: tuple[str, ...]) -> Any:
    """Parameters of a rank in adapted expert tensors, expanded for their product. [parameters]"""
    found = fused_with(setting.model, *names)
    return local(setting, [w for w in layer_weights(setting.model, kind) if w.name in found]) if names else 0.0


def _scores(size: Width) -> Width:
    """What of a width are attention scores."""
    return width(float(size[SCORE]), SCORE)
