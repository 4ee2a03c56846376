"""The instants at which a stage may peak, and what is alive at each. The peak is the largest instant and says why.

Every function here returns named terms for all candidates; `pricing` adds them up by coefficient, `explain` multiplies
them by one configuration's layer counts. Nothing else knows what is alive when.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cost_models.arrays import choose, somewhere
from cost_models.memory import backward, eager
from cost_models.memory.activations import (
    FULL,
    NONE,
    boundary_bytes,
    saved_terms,
)
from cost_models.memory.logits import evaluation_terms, held_outputs, loss_terms
from cost_models.memory.options import evaluation_score_bytes, option_terms
from cost_models.memory.overheads import (
    accumulated_copies,
    buckets_linger,
    flattened_copies,
    gathering,
    keeps_buckets,
    kept_gathered,
)
from cost_models.memory.pieces import WITH_EMBEDDING, WITH_HEAD, Pieces
from cost_models.memory.reductions import allreduced_bytes, bucket_copies, root_reduction
from cost_models.memory.setting import Setting, Terms, larger, merged, once, scaled
from cost_models.memory.sharding import local
from cost_models.memory.states import States, cast_bytes
from cost_models.memory.writing import fused_with
from cost_models.parameters import embedding_weights, layer_weights
from cost_models.schedule import BOTH


@dataclass(frozen=True, slots=True, kw_only=True)
class Instant:
    """One moment of a run."""

    name: str
    phase: str
    """load, first_step, step, eval or save."""
    holds_activations: bool = False
    released: int = 0
    """Chunks of the oldest micro-batch that backward has already freed."""
    selector: int = 0
    """0: the working set is the last layer's, the least recomputed; 1: the first layer's, the most recomputed."""


INSTANTS: Final = (
    Instant(name="load", phase="load"),
    Instant(name="loss", phase="step", holds_activations=True, selector=1),
    Instant(name="backward_last_layer", phase="step", holds_activations=True),
    Instant(name="backward_first_layer", phase="step", holds_activations=True, released=1, selector=1),
    Instant(name="end_of_backward", phase="step", holds_activations=True, released=1, selector=1),
    Instant(name="optimizer_step", phase="step"),
    Instant(name="first_optimizer_step", phase="first_step"),
    Instant(name="evaluation", phase="eval"),
    Instant(name="save", phase="save"),
)
LOAD, LOSS, BACKWARD_LAST, BACKWARD_FIRST, END_OF_BACKWARD, STEP, FIRST_STEP, EVALUATION, SAVE = range(len(INSTANTS))
_COMPUTING: Final = (LOSS, BACKWARD_LAST, BACKWARD_FIRST)


def layer_terms(pieces: Pieces, kind: int, instant: int) -> Terms:
    """What one layer of a kind holds at an instant, activations apart. [bytes]"""
    setting, s = pieces.setting, pieces.layer_states[kind]
    parts = [s.weights, _present(pieces, s.gradients, instant), _optimizer(pieces, s, instant)]
    if instant not in (LOAD, EVALUATION, SAVE):
        parts.append(s.buffers)
    stepping = 1.0 if instant in (STEP, FIRST_STEP) else choose(setting.offloads_gradients, 1.0, 0.0)
    parts.append(scaled(s.step, stepping))
    if instant in (LOSS, BACKWARD_LAST):
        parts.append({"live_parameters": kept_gathered(setting) * pieces.gathered_layers[kind]})
    if instant != LOAD:
        parts.append({"live_parameters": pieces.small(kind)})
    return merged(*parts)


def offload_terms(pieces: Pieces, kind: int) -> Terms:
    """What moving one layer's optimizer to the host frees on the device, at every instant. [bytes]"""
    setting, s = pieces.setting, pieces.layer_states[kind]
    return merged(s.optimizer, scaled(merged(s.gradients, s.step), choose(setting.offloads_gradients, 1.0, 0.0)))


def _present(pieces: Pieces, gradients: Terms, instant: int) -> Terms:
    """Gradients that exist at an instant: all from the first layer's backward to the step, earlier ones if
    accumulating.
    """
    setting = pieces.setting
    if instant == END_OF_BACKWARD:
        return scaled(gradients, accumulated_copies(setting) + flattened_copies(setting))
    if instant == BACKWARD_FIRST:
        return scaled(gradients, accumulated_copies(setting))
    if instant in (STEP, FIRST_STEP):
        return scaled(gradients, choose(setting.whole_gradients, 1.0 / setting.shards, 1.0))
    if instant in (LOSS, BACKWARD_LAST):
        return scaled(gradients, setting.accumulated_before)
    return scaled(gradients, setting.persisting)


def _optimizer(pieces: Pieces, s: States, instant: int) -> Terms:
    if instant != LOAD:
        return s.optimizer
    setting = pieces.setting
    early = setting.says("states_created", "initialization") | (setting.column("optimizer_offload") > 0)
    return scaled(s.optimizer, choose(early, 1.0, 0.0))


def constant_terms(pieces: Pieces, stage_class: int, instant: int) -> Terms:
    """What a stage of a class holds at an instant whatever its layers: embedding, head, buffers. [bytes]"""
    setting = pieces.setting
    embedding, head = pieces.ends(stage_class)
    parts = [pieces.workspaces, {"mask_buffers": eager.mask_buffer_bytes(setting)}]
    for s in (embedding, head):
        if s is not None:
            parts += [s.weights, _optimizer(pieces, s, instant)]
            if instant in (STEP, FIRST_STEP):
                parts.append(s.step)
            if instant not in (LOAD, EVALUATION, SAVE):
                parts.append(s.buffers)
    if stage_class in WITH_HEAD and instant in (BACKWARD_LAST, BACKWARD_FIRST, END_OF_BACKWARD, STEP, FIRST_STEP):
        parts.append(held_outputs(setting))
    parts.append(_end_gradients(pieces, stage_class, instant))
    parts.append(_gathered(pieces, stage_class, instant))
    during: Any = 1.0 if instant in (BACKWARD_LAST, BACKWARD_FIRST, END_OF_BACKWARD) else keeps_buckets(setting)
    if instant == LOSS:
        during = np.maximum(during, buckets_linger(setting))
    if instant in (BACKWARD_FIRST, END_OF_BACKWARD):
        during = during + bucket_copies(pieces, ended=instant == END_OF_BACKWARD)
    parts.append({"buckets": during * pieces.buckets})
    if instant == END_OF_BACKWARD:
        parts.append({"buckets": allreduced_bytes(pieces)})
    if instant in (LOSS, BACKWARD_LAST, BACKWARD_FIRST, END_OF_BACKWARD):
        parts.append({"dummy_weight_gradients": _dummy_gradient(pieces)})
    parts.append(option_terms(setting, pieces.whole, INSTANTS[instant].phase))
    if setting.job.training.optimizer_in_backward and instant in (BACKWARD_LAST, BACKWARD_FIRST, END_OF_BACKWARD):
        parts.append({"gradients": setting.compute * _largest_tensor(pieces)})  # freed as soon as it is applied
    if instant in (STEP, FIRST_STEP) and somewhere(setting.fact("step_largest_tensor_bytes")):
        parts.append({"step_temporaries": setting.fact("step_largest_tensor_bytes") * _largest_tensor(pieces)})
    return merged(*parts)


def _end_gradients(pieces: Pieces, stage_class: int, instant: int) -> Terms:
    """Gradients of embedding and head. The head's exists from the start of backward; a tied one is there twice, and
    three times when both halves meet at the end of backward (torch autograd `InputBuffer`: partial, new, sum).
    """  # fmt: skip
    setting = pieces.setting
    embedding, head = pieces.ends(stage_class)
    terms: Terms = {}
    met: Any = 0.0
    if embedding is not None:
        before = (BACKWARD_FIRST,) if instant == BACKWARD_FIRST else ()
        at = LOSS if before else instant
        terms = merged(terms, _present(pieces, embedding.gradients, at))
    if head is not None:
        present = _present(pieces, head.gradients, STEP if instant == BACKWARD_LAST else instant)
        if instant in (BACKWARD_LAST, BACKWARD_FIRST):
            # A root group's gradients are whole until they are reduced at the end of backward.
            present = scaled(present, choose(gathering(setting, "root_group") > 0, setting.accumulating, 1.0))
        terms = merged(terms, present)
    if stage_class == BOTH and setting.model.tie_word_embeddings and embedding is not None:
        copies = {BACKWARD_LAST: 1.0, BACKWARD_FIRST: 1.0, END_OF_BACKWARD: 2.0}.get(instant, 0.0)
        size = choose(gathering(setting, "root_group") > 0, setting.compute, setting.layout("weight"))
        table = embedding_weights(setting.model)[:1] if setting.adapters is None else ()
        met = size * local(setting, table) * choose(setting.eager, copies, 0.0)
        terms = merged(terms, {"gradients": met})
    if instant == END_OF_BACKWARD:
        terms["buckets"] = np.maximum(root_reduction(pieces, stage_class) - met, 0.0)  # whichever holds more
    return terms


def _gathered(pieces: Pieces, stage_class: int, instant: int) -> Terms:
    """Gathered weights: the root group under FSDP, the budget under DeepSpeed; and the root group's whole gradients."""
    setting = pieces.setting
    if instant not in (*_COMPUTING, END_OF_BACKWARD, EVALUATION):
        return {}
    if instant == END_OF_BACKWARD:
        return {"live_parameters": _budget_left(pieces, stage_class, instant)}
    root = gathering(setting, "root_group")
    terms = {"live_parameters": root * pieces.gathered_ends(stage_class) + _budget_left(pieces, stage_class, instant)}
    if instant in (BACKWARD_LAST, BACKWARD_FIRST):
        trained = pieces.head(stage_class).trained if stage_class in WITH_HEAD else 0.0
        terms["gradients"] = root * (setting.compute * trained)
    return terms


def _budget_left(pieces: Pieces, stage_class: int, instant: int) -> Any:
    """Of the budget of gathered weights what is in use still: backward drops each when it is done with it. [bytes]

    Source: deepspeed `runtime/zero/partitioned_param_coordinator.py`, release_sub_module.
    """
    setting = pieces.setting
    embedding = pieces.embedding.base if stage_class in WITH_EMBEDDING else 0.0
    head = pieces.head(stage_class).base if stage_class in WITH_HEAD else 0.0
    whole = pieces.partitioned
    rest = {
        BACKWARD_LAST: whole - head,
        BACKWARD_FIRST: embedding + pieces.largest_layer / setting.compute,
        END_OF_BACKWARD: embedding,
    }.get(instant, whole)
    size = gathering(setting, "budget") * setting.compute * rest
    # Where not all fits in the budget, backward gathers again, in messages that outlive their use.
    again = choose(pieces.gathered_budget < setting.compute * whole, pieces.prefetched, 0.0)
    return np.minimum(pieces.gathered_budget, size) + (again if instant == BACKWARD_LAST else 0.0)


@once
def _dummy_gradient(pieces: Pieces) -> Any:
    """One 16-bit tensor per distinct weight shape of a dense layer, from the second micro-batch on.

    Source: Transformer Engine `module/base.py`, get_dummy_wgrad; grouped expert products return none.
    """
    setting = pieces.setting
    several = choose(setting.column("gradient_accumulation_steps") > 1, 1.0, 0.0)
    if not somewhere(setting.fact("dummy_weight_gradient")):
        return 0.0
    largest: Any = 0.0
    for kind in setting.kinds:
        if kind.mlp == "dense" and setting.model.mla is None:
            linear = [w for w in layer_weights(setting.model, kind) if w.linear and w.in_features]
            largest = np.maximum(largest, local(setting, linear))
    return several * setting.fact("dummy_weight_gradient") * setting.compute * largest


@once
def _largest_tensor(pieces: Pieces) -> Any:
    """Parameters of the largest trained tensor on a rank: a loop optimizer's temporaries. Fused ones are one tensor."""
    setting = pieces.setting
    if setting.adapters is not None:
        return 0.0
    largest: Any = setting.model.vocab_size * setting.model.hidden_size / setting.tensor
    for w in embedding_weights(setting.model)[1:]:
        largest = np.maximum(largest, local(setting, [w]))
    for kind in setting.kinds:
        weights = layer_weights(setting.model, kind)
        for w in weights:
            fused = fused_with(setting.model, w.name)
            largest = np.maximum(largest, local(setting, [each for each in weights if each.name in fused]))
    return largest


def stage_activation_terms(pieces: Pieces, stage_class: int) -> Terms:
    """What one micro-batch keeps on a stage beside its layers: rotary tables, token ids and labels. [bytes]"""
    setting = pieces.setting
    training, model = setting.job.training, setting.model
    context = setting.float_column("context_parallel")
    rotary = 2.0 * setting.activation * model.head_dim * training.sequence_length / context
    rotary = rotary if model.position_embedding == "rotary" else 0.0 * rotary
    kept = rotary + 16.0 * setting.tokens
    if model.embedding_norm and stage_class in WITH_EMBEDDING:
        kept = kept + eager.norm_kept(setting) * setting.tokens
    return {"stage_activations": kept}


def activation_terms(pieces: Pieces, kind: int, mode: int) -> Terms:
    """What one layer of a kind keeps for one micro-batch under a recompute mode. [bytes]"""
    setting = pieces.setting
    if mode == FULL:
        kept = choose(setting.column("activation_offload") > 0, 0.0, boundary_bytes(setting))
        return {"recompute_boundary": kept}
    one, other = pieces.saved[kind]
    terms = pieces.both(saved_terms(setting, one, mode), saved_terms(setting, other, mode))
    return merged(terms, {"weight_casts": cast_bytes(setting, pieces.layers[kind])})


def working_terms(pieces: Pieces, stage_class: int, instant: int, mode: int) -> Terms:
    """The working set at an instant, for the recompute mode of the layer it happens in. [bytes]"""
    if instant == LOSS:
        return _loss_working(pieces, stage_class, mode)
    if instant in (BACKWARD_LAST, BACKWARD_FIRST):
        return backward.largest_terms(pieces, mode, first=instant == BACKWARD_FIRST)
    setting = pieces.setting
    if instant == END_OF_BACKWARD:
        stream = choose(setting.autocast, 4.0, setting.activation)
        gradient = stream * setting.model.hidden_size * setting.tokens / setting.sequence_shards
        # A tied table's new gradient replaces it before both are added.
        tied = setting.eager & (stage_class == BOTH and setting.model.tie_word_embeddings)
        kept = 1.0 if stage_class in WITH_EMBEDDING else 0.0
        return {"backward_working_set": kept * choose(tied, 0.0, gradient)}
    if instant == EVALUATION:
        terms = {**evaluation_terms(setting), "attention_working_set": evaluation_score_bytes(setting)}
        return terms if stage_class in WITH_HEAD else {k: v for k, v in terms.items() if k != "logits"}
    if instant == SAVE:
        return {"live_parameters": gathering(setting, "root_group") * pieces.largest_layer}
    return {}


def _loss_working(pieces: Pieces, stage_class: int, mode: int) -> Terms:
    """The head's tensors; elsewhere the stage's output. The last layer is still gathered."""
    setting = pieces.setting
    root = gathering(setting, "root_group") * (1.0 - kept_gathered(setting))
    terms: Terms = {"live_parameters": root * pieces.largest_layer}
    if stage_class in WITH_HEAD:
        weight = setting.vocabulary * (setting.model.embedding_projection or setting.model.hidden_size)
        trained = 1.0 if setting.adapters is None else 0.0
        expanded = setting.fact("quantized_head") * setting.compute * weight if setting.quantized else 0.0
        head = {"dequantized_weights": expanded, "weight_casts": trained * setting.layout("cast") * weight}
        terms = merged(terms, larger(loss_terms(setting), _before_head(pieces, mode)), head)
    else:
        output = setting.activation * setting.model.hidden_size * setting.tokens / setting.sequence_shards
        terms["backward_working_set"] = output
    if mode == FULL:
        terms["attention_mask"] = backward.mask_bytes(pieces)
    if stage_class in WITH_EMBEDDING and mode == NONE:
        terms["activations"] = -_unneeded_first_norm(setting)
    return terms


def _before_head(pieces: Pieces, mode: int) -> Terms:
    """The last layer's forward or the final norm, while the message that the head was gathered in is still there."""
    setting = pieces.setting
    messages = gathering(setting, "budget")
    if not somewhere(messages):
        return {}
    largest: Any = eager.head_kept(setting)
    for kind in setting.kinds:
        largest = np.maximum(largest, eager.forward_bytes(setting, kind, keeps=mode != FULL))
    return {"live_parameters": pieces.prefetched, "head_activations": messages * largest * setting.tokens}


@once
def _unneeded_first_norm(setting: Setting) -> Any:
    """The first norm saves nothing where neither it nor the embedding below it is trained. [bytes]"""
    if setting.adapters is None or setting.adapters.train_embeddings:
        return 0.0
    first = eager.unneeded_in_first(setting) * setting.tokens
    return choose(setting.eager, first, 0.0)
