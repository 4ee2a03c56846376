"""The instants at which a stage may peak, and what is alive at each. The peak is the largest instant and says why.

Every function here returns named terms for all candidates; `pricing` adds them up by coefficient, `explain` multiplies
them by one configuration's layer counts. Nothing else knows what is alive when.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from cost_models.calibration import Calibration
from cost_models.memory import eager, megatron
from cost_models.memory.activations import (
    FULL,
    NONE,
    SELECTIVE,
    Moment,
    Saved,
    boundary_bytes,
    saved_bytes,
    saved_terms,
)
from cost_models.memory.logits import evaluation_terms, loss_terms
from cost_models.memory.overheads import (
    bucket_bytes,
    budget_bytes,
    gathered_bytes,
    gathering,
    kept_gathered,
    small_bytes,
    workspace_terms,
)
from cost_models.memory.setting import Setting, Terms, larger, merged, scaled
from cost_models.memory.sharding import Held, embedding_held, head_held, layer_held, local
from cost_models.memory.states import States, cast_bytes, gradient_bytes, states
from cost_models.parameters import Split, embedding_weights, layer_weights
from cost_models.schedule import BOTH, FIRST, LAST, STAGE_CLASSES
from cost_models.specs.model import LayerKind


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
_EMBEDDING: Final = (FIRST, BOTH)
_HEAD: Final = (LAST, BOTH)


@dataclass(frozen=True, kw_only=True)
class Pieces:
    """What the instants are put together from, computed once."""

    setting: Setting
    calibration: Calibration

    @cached_property
    def layers(self) -> tuple[Held, ...]:
        """Parameters of one layer, by kind."""
        return tuple(layer_held(self.setting, kind) for kind in self.setting.kinds)

    @cached_property
    def layer_states(self) -> tuple[States, ...]:
        """States of one layer, by kind."""
        return tuple(states(self.setting, held) for held in self.layers)

    @cached_property
    def embedding(self) -> Held:
        """Parameters of the embedding."""
        return embedding_held(self.setting)

    @cached_property
    def heads(self) -> dict[int, Held]:
        """Parameters of the head, by stage class: a last stage apart from the first has its own tied copy."""
        return {c: head_held(self.setting, own_tied_copy=c == LAST) for c in _HEAD}

    @cached_property
    def ends(self) -> tuple[tuple[States | None, States | None], ...]:
        """States of embedding and head, by stage class."""
        empty: tuple[States | None, ...] = (None,) * len(STAGE_CLASSES)
        embedding, heads = list(empty), list(empty)
        for c in _EMBEDDING:
            embedding[c] = states(self.setting, self.embedding)
        for c in _HEAD:
            heads[c] = states(self.setting, self.heads[c])
        return tuple(zip(embedding, heads, strict=True))

    @cached_property
    def whole(self) -> Any:
        """Parameters of an average stage, before ZeRO. [parameters]"""
        counts = [self.setting.model.layer_sequence.count(kind) for kind in self.setting.kinds]
        layers = sum(
            (c * (h.base + h.adapter) for c, h in zip(counts, self.layers, strict=True)),
            np.zeros_like(self.setting.tensor),
        )
        return (layers + self.embedding.base + self.heads[BOTH].base) / self.setting.strategy.pipeline_parallel

    @cached_property
    def styles(self) -> tuple[bool, ...]:
        """Which ledgers occur among the candidates: eager, Megatron."""
        return bool(np.any(self.setting.eager)), bool(np.any(~np.asarray(self.setting.eager)))

    @cached_property
    def saved(self) -> tuple[tuple[tuple[Saved, ...], tuple[Saved, ...]], ...]:
        """Entries of one layer by kind, in the eager and in Megatron's ledger; empty where no candidate needs them."""
        return tuple(
            (
                eager.layer(self.setting, kind) if self.styles[0] else (),
                megatron.layer(self.setting, kind) if self.styles[1] else (),
            )
            for kind in self.setting.kinds
        )

    def chosen(self, one: Any, other: Any) -> Any:
        """The eager ledger's value or Megatron's, by candidate."""
        return np.where(self.setting.eager, one, other)

    def both(self, one: Terms, other: Terms) -> Terms:
        """The eager ledger's terms or Megatron's, by candidate."""
        return {name: self.chosen(one.get(name, 0.0), other.get(name, 0.0)) for name in dict.fromkeys([*one, *other])}


def layer_terms(pieces: Pieces, kind: int, instant: int) -> Terms:
    """What one layer of a kind holds at an instant, activations apart. [bytes]"""
    setting, s = pieces.setting, pieces.layer_states[kind]
    parts = [s.weights, _present(pieces, s.gradients, instant), _optimizer(pieces, s, instant)]
    if instant not in (LOAD, EVALUATION, SAVE):
        parts.append(s.buffers)
    if instant in (STEP, FIRST_STEP):
        parts.append(s.step)
    if instant in (LOSS, BACKWARD_LAST):
        parts.append({"live_parameters": kept_gathered(setting) * gathered_bytes(setting, pieces.layers[kind])})
    if instant != LOAD:
        parts.append({"live_parameters": small_bytes(setting, pieces.layers[kind])})
    return merged(*parts)


def _present(pieces: Pieces, gradients: Terms, instant: int) -> Terms:
    """Gradients that exist at an instant: all from the first layer's backward to the step, earlier ones if accumulating."""
    setting = pieces.setting
    if instant in (BACKWARD_FIRST, END_OF_BACKWARD, STEP, FIRST_STEP):
        return gradients
    if instant in (LOSS, BACKWARD_LAST):
        return scaled(gradients, setting.accumulating)
    return scaled(gradients, np.where(setting.fact("gradients_persist") > 0, 1.0, 0.0))


def _optimizer(pieces: Pieces, s: States, instant: int) -> Terms:
    if instant != LOAD:
        return s.optimizer
    setting = pieces.setting
    early = setting.says("states_created", "initialization") | (np.asarray(setting.strategy.optimizer_offload) > 0)
    return scaled(s.optimizer, np.where(early, 1.0, 0.0))


def constant_terms(pieces: Pieces, stage_class: int, instant: int) -> Terms:
    """What a stage of a class holds at an instant whatever its layers: embedding, head, buffers. [bytes]"""
    setting = pieces.setting
    embedding, head = pieces.ends[stage_class]
    parts = [workspace_terms(setting, pieces.calibration)]
    for s in (embedding, head):
        if s is not None:
            parts += [s.weights, _optimizer(pieces, s, instant)]
            if instant in (STEP, FIRST_STEP):
                parts.append(s.step)
            if instant not in (LOAD, EVALUATION, SAVE):
                parts.append(s.buffers)
    parts.append(_end_gradients(pieces, stage_class, instant))
    parts.append(_gathered(pieces, stage_class, instant))
    if instant not in (LOAD, EVALUATION, SAVE):
        parts.append({"buckets": bucket_bytes(setting, pieces.whole)})
    if instant in (LOSS, BACKWARD_LAST, BACKWARD_FIRST, END_OF_BACKWARD):
        parts.append({"dummy_weight_gradients": _dummy_gradient(pieces)})
    if instant in (STEP, FIRST_STEP):
        parts.append({"step_temporaries": setting.fact("step_largest_tensor_bytes") * _largest_tensor(pieces)})
    return merged(*parts)


def _end_gradients(pieces: Pieces, stage_class: int, instant: int) -> Terms:
    """Gradients of embedding and head. The head's exists from the start of backward; a tied one is there twice, and
    three times when both halves meet at the end of backward (torch autograd `InputBuffer`: partial, new, sum).
    """  # fmt: skip
    setting = pieces.setting
    embedding, head = pieces.ends[stage_class]
    terms: Terms = {}
    if embedding is not None:
        before = (BACKWARD_FIRST,) if instant == BACKWARD_FIRST else ()
        at = LOSS if before else instant
        terms = merged(terms, _present(pieces, embedding.gradients, at))
    if head is not None:
        present = _present(pieces, head.gradients, END_OF_BACKWARD if instant == BACKWARD_LAST else instant)
        if instant in (BACKWARD_LAST, BACKWARD_FIRST):
            # A root group's gradients are whole until they are reduced at the end of backward.
            present = scaled(present, np.where(gathering(setting, "root_group") > 0, setting.accumulating, 1.0))
        terms = merged(terms, present)
    if stage_class == BOTH and setting.model.tie_word_embeddings and embedding is not None:
        copies = {BACKWARD_LAST: 1.0, BACKWARD_FIRST: 1.0, END_OF_BACKWARD: 2.0}.get(instant, 0.0)
        size = np.where(gathering(setting, "root_group") > 0, setting.compute, setting.layout("weight"))
        table = embedding_weights(setting.model)[:1] if setting.adapters is None else ()
        unsharded = size * local(setting, table) * np.where(setting.eager, copies, 0.0)
        terms = merged(terms, {"gradients": unsharded})
    return terms


def _gathered(pieces: Pieces, stage_class: int, instant: int) -> Terms:
    """Gathered weights: the root group under FSDP, the budget under DeepSpeed; and the root group's whole gradients."""
    setting = pieces.setting
    if instant not in (*_COMPUTING, END_OF_BACKWARD, EVALUATION):
        return {}
    root = gathering(setting, "root_group")
    ends: Any = 0.0
    gradients: Any = 0.0
    if stage_class in _EMBEDDING:
        ends = ends + gathered_bytes(setting, pieces.embedding)
    if stage_class in _HEAD:
        ends = ends + gathered_bytes(setting, pieces.heads[stage_class])
        gradients = setting.compute * pieces.heads[stage_class].trained
    if instant == END_OF_BACKWARD:
        return {}
    live = root * ends + budget_bytes(setting, pieces.layers, pieces.whole)
    terms = {"live_parameters": live}
    if instant in (BACKWARD_LAST, BACKWARD_FIRST):
        terms["gradients"] = root * gradients
    return terms


def _dummy_gradient(pieces: Pieces) -> Any:
    """One 16-bit tensor per distinct weight shape of a dense layer, from the second micro-batch on.

    Source: Transformer Engine `module/base.py`, get_dummy_wgrad; grouped expert products return none.
    """
    setting = pieces.setting
    several = np.where(np.asarray(setting.strategy.gradient_accumulation_steps) > 1, 1.0, 0.0)
    largest: Any = 0.0
    for kind in setting.kinds:
        if kind.mlp == "dense" and setting.model.mla is None:
            linear = [w for w in layer_weights(setting.model, kind) if w.linear and w.in_features]
            largest = np.maximum(largest, local(setting, linear))
    return several * setting.fact("dummy_weight_gradient") * setting.compute * largest


def _largest_tensor(pieces: Pieces) -> Any:
    """Parameters of the largest trained tensor on a rank: a loop optimizer's temporaries."""
    setting = pieces.setting
    if setting.adapters is not None:
        return 0.0
    largest: Any = setting.model.vocab_size * setting.model.hidden_size / setting.tensor
    for kind in setting.kinds:
        for w in layer_weights(setting.model, kind):
            largest = np.maximum(largest, local(setting, [w]))
    return largest


def stage_activation_terms(pieces: Pieces, stage_class: int) -> Terms:
    """What one micro-batch keeps on a stage beside its layers: rotary tables, token ids and labels. [bytes]"""
    setting = pieces.setting
    training, model = setting.job.training, setting.model
    context = np.asarray(setting.strategy.context_parallel, dtype=np.float64)
    rotary = 2.0 * setting.compute * model.head_dim * training.sequence_length / context
    rotary = rotary if model.position_embedding == "rotary" else 0.0 * rotary
    ids = 16.0 * setting.tokens
    return {"stage_activations": rotary + ids + 0.0 * stage_class}


def activation_terms(pieces: Pieces, kind: int, mode: int) -> Terms:
    """What one layer of a kind keeps for one micro-batch under a recompute mode. [bytes]"""
    setting = pieces.setting
    if mode == FULL:
        kept = np.where(np.asarray(setting.strategy.activation_offload) > 0, 0.0, boundary_bytes(setting))
        return {"recompute_boundary": kept}
    one, other = pieces.saved[kind]
    terms = pieces.both(saved_terms(setting, one, mode), saved_terms(setting, other, mode))
    return merged(terms, {"weight_casts": cast_bytes(setting, pieces.layers[kind])})


def working_terms(pieces: Pieces, stage_class: int, instant: int, mode: int) -> Terms:
    """The working set at an instant, for the recompute mode of the layer it happens in. [bytes]"""
    if instant == LOSS:
        return _loss_working(pieces, stage_class, mode)
    if instant in (BACKWARD_LAST, BACKWARD_FIRST):
        best: Terms = {}
        for kind in range(len(pieces.setting.kinds)):
            terms = _backward_working(pieces, kind, instant, mode)
            best = larger(best, terms) if best else terms
        return best
    setting = pieces.setting
    if instant == END_OF_BACKWARD:
        stream = np.where(setting.autocast, 4.0, setting.compute)
        gradient = stream * setting.model.hidden_size * setting.tokens / setting.sequence_shards
        # A tied table's new gradient replaces it before both are added.
        tied = setting.eager & (stage_class == BOTH and setting.model.tie_word_embeddings)
        kept = 1.0 if stage_class in _EMBEDDING else 0.0
        return {"backward_working_set": kept * np.where(tied, 0.0, gradient)}
    if instant == EVALUATION:
        terms = evaluation_terms(setting)
        if stage_class not in _HEAD:
            terms["logits"] = 0.0 * terms["logits"]
        return terms
    if instant == SAVE:
        return {"live_parameters": gathering(setting, "root_group") * _largest_layer(pieces)}
    return {}


def _largest_layer(pieces: Pieces) -> Any:
    largest: Any = 0.0
    for held in pieces.layers:
        largest = np.maximum(largest, gathered_bytes(pieces.setting, held))
    return largest


def _loss_working(pieces: Pieces, stage_class: int, mode: int) -> Terms:
    """The head's tensors; elsewhere the stage's output. The last layer is still gathered."""
    setting = pieces.setting
    root = gathering(setting, "root_group") * (1.0 - kept_gathered(setting))
    terms: Terms = {"live_parameters": root * _largest_layer(pieces)}
    if stage_class in _HEAD:
        weight = setting.vocabulary * (setting.model.embedding_projection or setting.model.hidden_size)
        trained = 1.0 if setting.adapters is None else 0.0
        terms |= {**loss_terms(setting), "weight_casts": trained * setting.layout("cast") * weight}
    else:
        output = setting.compute * setting.model.hidden_size * setting.tokens / setting.sequence_shards
        terms["backward_working_set"] = output
    if stage_class in _EMBEDDING and mode == NONE:
        terms["activations"] = -_unneeded_first_norm(setting)
    return terms


def _unneeded_first_norm(setting: Setting) -> Any:
    """The first norm saves nothing where neither it nor the embedding below it is trained. [bytes]"""
    if setting.adapters is None or setting.adapters.train_embeddings:
        return 0.0
    first = eager.norm(setting, setting.model.hidden_size) * setting.tokens / setting.sequence_shards
    return np.where(setting.eager, first, 0.0)


def _backward_working(pieces: Pieces, kind: int, instant: int, mode: int) -> Terms:
    """The largest moment of one layer's backward, in the eager or in Megatron's ledger."""
    setting, layer = pieces.setting, setting_kind(pieces, kind)
    one = _moments(pieces, kind, instant, mode, eager.backward_moments(setting, layer), 0) if pieces.styles[0] else {}
    other = (
        _moments(pieces, kind, instant, mode, megatron.backward_moments(setting, layer), 1) if pieces.styles[1] else {}
    )
    return pieces.both(one, other)


def setting_kind(pieces: Pieces, kind: int) -> LayerKind:
    """The layer kind at an index of the table's axis."""
    return pieces.setting.kinds[kind]


def _moments(pieces: Pieces, kind: int, instant: int, mode: int, moments: tuple[Moment, ...], style: int) -> Terms:
    best: Terms = {}
    for moment in moments:
        terms = merged(_kept_again(pieces, kind, instant, mode, style), _moment(pieces, kind, instant, moment))
        best = larger(best, terms) if best else terms
    if instant == BACKWARD_LAST and style == 0:
        # Under full sharding the layer before the last adds the last one's reduction and a prefetch.
        for moment in moments:
            terms = merged(
                _kept_again(pieces, kind, instant, mode, style),
                _moment(pieces, kind, instant, moment),
                _second_layer(pieces, kind, mode),
            )
            best = larger(best, terms)
    return best


def _kept_again(pieces: Pieces, kind: int, instant: int, mode: int, style: int) -> Terms:
    """The layer's own saved tensors, when its backward must first repeat them or when they are no longer in flight."""
    setting = pieces.setting
    entries = pieces.saved[kind][style]
    if mode == FULL:
        repeated = (
            saved_bytes(entries, NONE) * setting.tokens * np.maximum(np.asarray(setting.strategy.recompute_interval), 1)
        )
        boundary = boundary_bytes(setting) if instant == BACKWARD_FIRST else 0.0
        offloaded = np.where(np.asarray(setting.strategy.activation_offload) > 0, 2.0, 0.0) * boundary_bytes(setting)
        return {
            "recompute_working_set": repeated + cast_bytes(setting, pieces.layers[kind]),
            "recompute_boundary": np.maximum(boundary, offloaded),
        }
    everything, kept = saved_bytes(entries, NONE), saved_bytes(entries, mode)
    missing = (
        everything - (kept if instant == BACKWARD_LAST else 0.0)
        if mode == SELECTIVE
        else (everything if instant == BACKWARD_FIRST else 0.0)
    )
    return {"recompute_working_set" if mode == SELECTIVE else "activations": missing * setting.tokens}


def _moment(pieces: Pieces, kind: int, instant: int, moment: Moment) -> Terms:
    """Gradients of activations and of the layer's own weights at a moment; a whole layer gathered where sharded."""
    setting, held = pieces.setting, pieces.layers[kind]
    root = gathering(setting, "root_group")
    layer = setting_kind(pieces, kind)
    produced = [w for w in layer_weights(setting.model, layer) if w.name.rsplit(".", 1)[-1] in moment.weights]
    own = local(setting, produced) if setting.adapters is None else 0.0
    fresh = 1.0 - setting.accumulating
    sharded = gradient_bytes(setting, held)["gradients"]
    gradients = np.where(root > 0, setting.compute * own, fresh * setting.layout("gradient") * own)
    if instant == BACKWARD_FIRST:
        gradients = gradients - fresh * sharded
        live = root * gathered_bytes(setting, held)
        reduction = root * setting.layout("reduce") * (held.trained + held.expert)
    else:
        live = root * (1.0 - kept_gathered(setting)) * gathered_bytes(setting, held)
        reduction = 0.0 * live
    return {
        "backward_working_set": moment.added * setting.tokens,
        "weight_casts": -setting.layout("cast") * own,
        "gradients": gradients,
        "live_parameters": live + _dequantised(pieces, kind),
        "buckets": reduction,
    }


def _second_layer(pieces: Pieces, kind: int, mode: int) -> Terms:
    """What changes when the last layer is done and the one before it is in backward, under full sharding. [bytes]"""
    setting, held = pieces.setting, pieces.layers[kind]
    root = gathering(setting, "root_group")
    fresh = 1.0 - setting.accumulating
    freed = boundary_bytes(setting) if mode == FULL else saved_bytes(pieces.saved[kind][0], mode) * setting.tokens
    return {
        "recompute_boundary" if mode == FULL else "activations": -freed,
        "live_parameters": root * (1.0 - kept_gathered(setting)) * gathered_bytes(setting, held),
        "buckets": root * setting.layout("reduce") * (held.trained + held.expert),
        "gradients": fresh * gradient_bytes(setting, held)["gradients"],
    }


def _dequantised(pieces: Pieces, kind: int) -> Any:
    """The largest 4-bit weight of a layer, expanded for its product. Source: bitsandbytes `MatMul4Bit`."""
    setting = pieces.setting
    if not setting.quantized:
        return 0.0
    largest: Any = 0.0
    for w in layer_weights(setting.model, setting_kind(pieces, kind)):
        if w.linear and w.in_features:
            one = local(setting, [w]) / (w.copies if w.split is Split.EXPERT else 1)
            largest = np.maximum(largest, one)
    return setting.compute * largest
