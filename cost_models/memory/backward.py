"""The working set of one layer's backward: what it adds to what forward saved, at its largest moment.

The largest over the model's layer kinds stands for the layer in question, whichever its kind.
"""

from typing import Any

import numpy as np

from cost_models.arrays import choose
from cost_models.memory import eager, megatron
from cost_models.memory.activations import FULL, NONE, SELECTIVE, Moment, boundary_bytes, saved_bytes
from cost_models.memory.overheads import gathering, kept_gathered
from cost_models.memory.pieces import Pieces
from cost_models.memory.reductions import between_cpus, layer_reduction, scatters
from cost_models.memory.setting import Setting, Terms, larger, merged, once, total
from cost_models.memory.sharding import local
from cost_models.memory.states import cast_bytes
from cost_models.parameters import Split, layer_weights

EAGER, MEGATRON = range(2)


def moments(pieces: Pieces, kind: int, style: int) -> tuple[Moment, ...]:
    """The moments of a layer's backward in one ledger, and last that of the forward which it may have to repeat."""
    layer = pieces.setting.kinds[kind]
    if style == MEGATRON:
        return megatron.backward_moments(pieces.setting, layer)
    return eager.backward_moments(pieces.setting, layer) + eager.repeat_moments(pieces.setting, layer)


def _reached(pieces: Pieces, kind: int, style: int, mode: int) -> range:
    """Which of a layer's moments occur in a recompute mode."""
    repeats = len(eager.repeat_moments(pieces.setting, pieces.setting.kinds[kind])) if style == EAGER else 0
    return range(len(moments(pieces, kind, style)) - (0 if mode == FULL else repeats))


def largest_terms(pieces: Pieces, mode: int, *, first: bool) -> Terms:
    """The terms of the largest moment, for the stage's first layer or its last. [bytes]"""
    both: list[Terms] = []
    for style in (EAGER, MEGATRON):
        best: Terms = {}
        for kind in range(len(pieces.setting.kinds) if pieces.styles[style] else 0):
            kept = _kept_again(pieces, kind, mode, style, first=first)
            one: Terms = {}
            for index in _reached(pieces, kind, style, mode):
                moment = _moment(pieces, kind, style, index, first=first)
                one = larger(one, moment) if one else moment
            if style == EAGER:
                neighbour = _layer_above if first else _layer_before
                one = larger(one, merged(one, neighbour(pieces, kind, mode)))
            candidate = merged(kept, one)
            if style == EAGER and between_cpus(pieces.setting):
                candidate = _or_reduced(candidate, pieces, layer_reduction(pieces, kind, mode, first=first))
            best = larger(best, candidate) if best else candidate
        both.append(best)
    return pieces.both(both[EAGER], both[MEGATRON])


def peak_bytes(pieces: Pieces, mode: int, *, first: bool) -> Any:
    """The sum of `largest_terms`, without keeping the names. [bytes]"""
    peaks: list[Any] = []
    for style in (EAGER, MEGATRON):
        best: Any = None
        for kind in range(len(pieces.setting.kinds) if pieces.styles[style] else 0):
            peak = _largest_moment(pieces, kind, style, mode == FULL, first=first)
            if style == EAGER:
                neighbour = _layer_above if first else _layer_before
                peak = peak + np.maximum(total(neighbour(pieces, kind, mode)), 0.0)
            peak = peak + total(_kept_again(pieces, kind, mode, style, first=first))
            if style == EAGER and between_cpus(pieces.setting):
                reduced = total(layer_reduction(pieces, kind, mode, first=first))
                peak = choose(scatters(pieces.setting) > 0, np.maximum(peak, reduced), peak)
            best = peak if best is None else np.maximum(best, peak)
        peaks.append(0.0 if best is None else best)
    return pieces.chosen(peaks[EAGER], peaks[MEGATRON])


def _or_reduced(moment: Terms, pieces: Pieces, reduced: Terms) -> Terms:
    fuller = (scatters(pieces.setting) > 0) & (total(reduced) > total(moment))
    names = dict.fromkeys([*moment, *reduced])
    return {name: choose(fuller, reduced.get(name, 0.0), moment.get(name, 0.0)) for name in names}


@once
def _largest_moment(pieces: Pieces, kind: int, style: int, repeats: bool, *, first: bool) -> Any:
    reached = _reached(pieces, kind, style, FULL if repeats else NONE)
    sizes = [total(_moment(pieces, kind, style, i, first=first)) for i in reached]
    largest = sizes[0]
    for size in sizes[1:]:
        largest = np.maximum(largest, size)
    return largest


@once
def mask_bytes(pieces: Pieces) -> Any:
    """The attention mask that recomputed layers share in the eager ledger. [bytes]"""
    setting = pieces.setting
    return pieces.chosen(eager.shared_mask(setting) * setting.tokens, 0.0)


@once
def _kept_again(pieces: Pieces, kind: int, mode: int, style: int, *, first: bool) -> Terms:
    """The layer's own saved tensors and copies of weights, when its backward must first repeat them or when they no
    longer count as in flight.
    """
    setting = pieces.setting
    entries = pieces.saved[kind][style]
    everything, casts = saved_bytes(entries, NONE) * setting.tokens, cast_bytes(setting, pieces.layers[kind])
    if mode == FULL:
        everything = everything - saved_bytes(entries, NONE, "boundary") * setting.tokens
        interval = np.maximum(setting.column("recompute_interval"), 1)
        boundary = boundary_bytes(setting)
        offloaded = choose(setting.column("activation_offload") > 0, 2.0, 0.0) * boundary
        return {
            "recompute_working_set": everything * interval,
            "weight_casts": casts,
            "recompute_boundary": np.maximum(boundary if first else 0.0, offloaded),
            "attention_mask": mask_bytes(pieces) if style == EAGER else 0.0,
        }
    if mode == SELECTIVE:
        held = 0.0 if first else saved_bytes(entries, SELECTIVE) * setting.tokens
        return {"recompute_working_set": everything - held, "weight_casts": casts if first else 0.0}
    return {"activations": everything if first else 0.0, "weight_casts": casts if first else 0.0}


@once
def _moment(pieces: Pieces, kind: int, style: int, index: int, *, first: bool) -> Terms:
    """Gradients of activations and of the layer's own weights at a moment; a whole layer gathered where sharded."""
    setting = pieces.setting
    moment = moments(pieces, kind, style)[index]
    root = gathering(setting, "root_group")
    own, copied = moment.own, moment.copied
    fresh = 1.0 - setting.accumulating
    gradients = choose(root > 0, setting.compute, fresh * setting.layout("gradient")) * own
    if first:
        gradients = gradients - fresh * pieces.layer_states[kind].gradients["gradients"]
    return {
        "backward_working_set": moment.added * setting.tokens,
        "attention_working_set": moment.scores * setting.tokens,
        "dequantized_weights": _dequantised(pieces, kind),
        "weight_casts": setting.layout("cast") * (copied - own) + setting.compute * moment.passed,
        "gradients": gradients,
        **_gathered(pieces, kind, first=first),
    }


@once
def _gathered(pieces: Pieces, kind: int, *, first: bool) -> Terms:
    """One gathered layer, and the reduction of the layer after it when the first is in backward."""
    setting, held = pieces.setting, pieces.layers[kind]
    root = gathering(setting, "root_group")
    live = root * pieces.gathered_layers[kind]
    reduction = root * _reduced_at_once(setting) * (held.trained + held.expert)
    if first:
        return {"live_parameters": live, "buckets": reduction}
    return {"live_parameters": live * (1.0 - kept_gathered(setting))}


@once
def _reduced_at_once(setting: Setting) -> Any:
    """Bytes per parameter of the copy that is reduced: none of what is flat already."""
    return choose(setting.flat, 0.0, setting.layout("reduce"))


@once
def _layer_before(pieces: Pieces, kind: int, mode: int) -> Terms:
    """What changes when the last layer is done and the one before it is in backward, under full sharding. [bytes]

    The last layer's activations are gone, its gradients are sharded, its reduction is in flight and the next layer
    is prefetched; where all layers are kept gathered, the last no longer is. Without full sharding this lies between
    the first and the last layer and is left out.
    """
    setting, held = pieces.setting, pieces.layers[kind]
    root = gathering(setting, "root_group")
    fresh = 1.0 - setting.accumulating
    freed = boundary_bytes(setting) if mode == FULL else saved_bytes(pieces.saved[kind][EAGER], mode) * setting.tokens
    return {
        "recompute_boundary" if mode == FULL else "activations": -root * freed,
        "live_parameters": root * (1.0 - 2.0 * kept_gathered(setting)) * pieces.gathered_layers[kind],
        "buckets": root * _reduced_at_once(setting) * (held.trained + held.expert),
        "gradients": root * fresh * pieces.layer_states[kind].gradients["gradients"],
    }


@once
def _layer_above(pieces: Pieces, kind: int, mode: int) -> Terms:
    """What is different when the second layer is in backward instead of the first, under full sharding. [bytes]

    The first layer is gathered, ahead or still, its activations are alive and the second's gradients are not yet
    sharded.
    """
    before = _layer_before(pieces, kind, mode)
    several = pieces.setting.model.num_hidden_layers > pieces.setting.column("pipeline_parallel")
    terms = {name: -value for name, value in before.items() if name not in ("buckets", "live_parameters")}
    terms["live_parameters"] = gathering(pieces.setting, "root_group") * pieces.gathered_layers[kind]
    return {name: choose(several, value, 0.0) for name, value in terms.items()}


@once
def _dequantised(pieces: Pieces, kind: int) -> Any:
    """The largest 4-bit weight of a layer, expanded for its product. Source: bitsandbytes `MatMul4Bit`."""
    setting = pieces.setting
    if not setting.quantized:
        return 0.0
    largest: Any = 0.0
    for w in layer_weights(setting.model, setting.kinds[kind]):
        if w.linear and w.in_features:
            one = local(setting, [w]) / (w.copies if w.split is Split.EXPERT else 1)
            largest = np.maximum(largest, one)
    return setting.compute * largest
