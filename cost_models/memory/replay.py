"""What the caching allocator reserves for a stage: its own allocations and frees, in order, over a few steps.

The order of requests follows the ledger's operators: weights, then per micro-batch every layer's saved tensors and
temporaries, the loss, every layer's gradients, then the optimizer. Only the ratio of reserved to allocated bytes is
taken from a replay, and applied to the ledger's peak: what a replay leaves out of both cancels. It reports and never
enters a solve. About 20 ms per configuration, and bounded: of a deep stage it plays an even sample of the layers.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from cost_models.calibration import Calibration
from cost_models.job import Job
from cost_models.memory.activations import FULL, NONE, SELECTIVE, Saved
from cost_models.memory.architectures import architecture
from cost_models.memory.backward import EAGER
from cost_models.memory.caching import Block, CachingAllocator
from cost_models.memory.events import LayerEvents, layer_events
from cost_models.memory.logits import held_outputs, loss_terms
from cost_models.memory.options import facts_of
from cost_models.memory.overheads import (
    gathered_bytes,
    gathering,
    keeps_buckets,
    workspace_terms,
)
from cost_models.memory.pieces import WITH_EMBEDDING, WITH_HEAD, Pieces
from cost_models.memory.setting import Setting, total
from cost_models.memory.sharding import Held, is_target, local
from cost_models.memory.states import States
from cost_models.parameters import Weight, embedding_weights, head_weights, layer_weights
from cost_models.schedule import stage_class, stage_in_flight
from cost_models.specs.choices import RECOMPUTES, Recompute
from cost_models.specs.configuration import Configuration
from cost_models.specs.framework import FrameworkFacts
from cost_models.specs.model import LayerKind
from cost_models.strategy import Strategy
from cost_models.time.layout import stage_layers

STEPS: Final = 2
"""Optimizer steps that are replayed: states exist from the end of the first one on, and what it freed serves the next;
a third one repeats the second."""
_MOST_MICRO_BATCHES: Final = 2
"""Micro-batches per step beyond those in flight: later ones repeat them."""
_MOST_PASSES: Final = 256
"""Layers times micro-batches of one step. Beyond, fewer layers stand for all: equal ones repeat the same requests."""
_LEAST_LAYERS: Final = 3
"""A first, a last and one between."""
_MOST_IN_FLIGHT: Final = _MOST_PASSES // _LEAST_LAYERS - _MOST_MICRO_BATCHES
Blocks = list[Block | None]


@dataclass(frozen=True, slots=True)
class Replayed:
    """Peaks of a replay. [bytes]"""

    allocated: int
    reserved: int

    @property
    def ratio(self) -> float:
        """Reserved over allocated."""
        return self.reserved / self.allocated if self.allocated else 1.0


@dataclass(slots=True)
class _Unit:
    """A layer, or one end of the model: its tensors and what it holds."""

    states: States
    held: Held
    weights: tuple[Weight, ...]
    kind: int = -1
    mode: int = NONE
    saved: Blocks = field(default_factory=list)
    gradients: Blocks = field(default_factory=list)


class Stage:
    """One rank of one stage of the eager ledger, replayed."""

    def __init__(self, pieces: Pieces, configuration: Configuration, index: int,
                 layers: list[tuple[LayerKind, Recompute]], *, expandable: bool = False) -> None:  # fmt: skip
        self.pieces, self.setting = pieces, pieces.setting
        self.memory = CachingAllocator(expandable=expandable)
        self.tokens = float(self.setting.tokens)
        self.persistent = float(self.setting.persisting) > 0
        which = stage_class(index, configuration.pipeline_parallel)
        micro = configuration.gradient_accumulation_steps
        counts = tuple(stage.layers for stage in configuration.stages)
        flight = stage_in_flight(counts, index, configuration.virtual_pipeline_stages, micro)
        self.flight = min(max(1, round(flight)), _MOST_IN_FLIGHT)
        self.micro = min(max(micro, 1), self.flight + _MOST_MICRO_BATCHES)
        self.layers = [self._layer(kind, mode) for kind, mode in _sampled(layers, _MOST_PASSES // self.micro)]
        ends = pieces.ends(which)
        model = self.setting.model
        self.first = None if ends[0] is None else _Unit(ends[0], pieces.embedding, embedding_weights(model))
        self.last = None if ends[1] is None else _Unit(ends[1], pieces.head(which), head_weights(model))
        assert (which in WITH_EMBEDDING, which in WITH_HEAD) == (self.first is not None, self.last is not None)
        self.sharded = float(gathering(self.setting, "root_group")) > 0
        self.buckets = float(np.asarray(pieces.buckets))
        self.budget: Blocks = []
        self.made = False
        self.outputs: Block | None = None
        kinds = {unit.kind for unit in self.layers}
        self.events: dict[int, LayerEvents] = {k: layer_events(self.setting, self.setting.kinds[k]) for k in kinds}

    def _layer(self, kind: LayerKind, mode: Recompute) -> _Unit:
        at = self.setting.kinds.index(kind)
        weights = layer_weights(self.setting.model, kind)
        return _Unit(self.pieces.layer_states[at], self.pieces.layers[at], weights, at, RECOMPUTES.index(mode))

    @property
    def units(self) -> list[_Unit]:
        """Everything that holds weights, bottom to top."""
        return [unit for unit in (self.first, *self.layers, self.last) if unit is not None]

    def run(self, steps: int = STEPS) -> Replayed:
        """Load, then train."""
        for unit in self.units:
            self._spread(unit, float(total(unit.states.weights)))
        for size in workspace_terms(self.setting, self.pieces.calibration).values():
            self._take(float(size))
        if float(keeps_buckets(self.setting)) > 0:
            self._take(self.buckets)
        if self.persistent:
            self._take(sum(float(total(unit.states.gradients)) for unit in self.units))
        if bool(self.setting.says("states_created", "initialization")):
            self._make_states()
        for _ in range(steps):
            self._step()
        return Replayed(self.memory.peak_allocated, self.memory.peak_reserved)

    def _take(self, size: float) -> Block | None:
        return self.memory.allocate(size)

    def _drop(self, blocks: Iterable[Block | None]) -> None:
        for block in blocks:
            self.memory.release(block)

    def _hold_budget(self, rest: float) -> None:
        """Of the gathered weights that may stay, those of what is still to be used: a part for each layer. [bytes]"""
        whole = float(np.asarray(self.pieces.gathered_budget))
        if not whole:
            return
        count = round(min(rest / whole, 1.0) * len(self.layers))
        self._drop(self.budget[count:])
        kept = self.budget[:count]
        self.budget = kept + [self._take(whole / len(self.layers)) for _ in range(count - len(kept))]

    def _spread(self, unit: _Unit, size: float) -> Blocks:
        """A size over the unit's tensors, as their parameters are."""
        shares = _shares(self.setting, unit.weights)
        return [self._take(size * share) for share in shares]

    def _make_states(self) -> None:
        """Optimizer states: flat where they are sharded, else two or three per tensor."""
        self.made = True
        if self.persistent or float(self.setting.shards) > 1:
            whole = sum(float(total(unit.states.optimizer)) for unit in self.units)
            for _ in range(3):
                self._take(whole / 3)
            return
        for unit in self.units:
            for _ in range(2):
                self._spread(unit, float(total(unit.states.optimizer)) / 2)

    def _step(self) -> None:
        """One optimizer step: micro-batches in 1F1B order, then the update."""
        waiting: list[list[Blocks]] = []
        for at in range(self.micro):
            waiting.append(self._forward())
            if at + 1 >= self.flight:
                self._backward(waiting.pop(0))
        while waiting:
            self._backward(waiting.pop(0))
        if not self.made:
            self._make_states()
        passing = [self._take(float(total(unit.states.step))) for unit in self.units]
        self._drop(passing)
        if not self.persistent:
            for unit in self.units:
                self._drop(unit.gradients)
                unit.gradients = []

    def _forward(self) -> list[Blocks]:
        """Every layer; what each keeps."""
        kept: list[Blocks] = []
        self._hold_budget(math.inf)
        width = float(self.setting.model.hidden_size / self.setting.sequence_shards * self.setting.activation)
        stream = self._take(width * self.tokens)
        root = self._gather(self.first) + self._gather(self.last)
        for unit in self.layers:
            gathered = self._gather(unit)
            held = [stream]
            own, stream = self._layer_forward(unit)
            if unit.mode == FULL:
                self._drop(own)
            else:
                held += own
            kept.append(held)
            self._drop(gathered)
        kept.append([stream])
        kept.append(root)
        return kept

    def _layer_forward(self, unit: _Unit) -> tuple[Blocks, Block | None]:
        """What the layer saves, and its output."""
        if unit.mode == SELECTIVE:
            saved = [self._take(size) for size in self._kept_by_selective(unit)]
            self._drop(self._play_forward(self.events[unit.kind]))
        else:
            saved = self._play_forward(self.events[unit.kind])
        width = float(self.setting.model.hidden_size / self.setting.sequence_shards * self.setting.activation)
        return saved, self._take(width * self.tokens)

    def _kept_by_selective(self, unit: _Unit) -> list[float]:
        entries: tuple[Saved, ...] = self.pieces.saved[unit.kind][EAGER]
        kept = [entry for entry in entries if SELECTIVE in entry.modes and entry.part != "boundary"]
        return [float(np.asarray(entry.bytes_per_token)) * self.tokens for entry in kept]

    def _play_forward(self, events: LayerEvents) -> Blocks:
        alive: dict[int, Block | None] = {}
        for key, size in events.forward:
            if size > 0:
                alive[key] = self._take(size * self.tokens)
            else:
                self.memory.release(alive.pop(key, None))
        return list(alive.values())

    def _backward(self, kept: list[Blocks]) -> None:
        """The loss, then every layer from the top."""
        root, stream = kept.pop(), kept.pop()
        gradient = self._loss() if self.last is not None else self._take(_size(stream))
        self._drop(stream)
        reducing = None if float(keeps_buckets(self.setting)) > 0 else self._take(self.buckets)
        ahead = sum(float(unit.held.base) for unit in (self.first, *self.layers) if unit is not None)
        for unit, held in zip(reversed(self.layers), reversed(kept), strict=True):
            gathered = self._gather(unit)
            gradient = self._layer_backward(unit, held, gradient)
            self._drop(gathered)
            ahead -= float(unit.held.base)
            self._hold_budget(ahead * float(self.setting.compute))
        self.memory.release(gradient)
        self._weight_gradients(self.first)
        self._drop([*root, reducing])

    def _loss(self) -> Block | None:
        """The head's tensors; its input's gradient is what remains."""
        setting, kept = self.setting, float(total(held_outputs(self.setting)))
        terms = loss_terms(setting)
        head = self._take(float(np.asarray(terms["head_activations"])))
        logits = float(np.asarray(terms["logits"])) - kept
        self.memory.release(self.outputs)  # the new outputs take the name of the old ones
        self.outputs = self._take(kept)
        parts: Blocks = [self._take(logits / 3) for _ in range(3)]
        self.memory.release(parts.pop())
        self._take_and_drop(logits / 3)
        gradient = self._take(float(setting.model.hidden_size) * float(setting.activation) * self.tokens)
        self._weight_gradients(self.last)
        self._drop([*parts, head])
        return gradient

    def _take_and_drop(self, size: float) -> None:
        self.memory.release(self._take(size))

    def _layer_backward(self, unit: _Unit, held: Blocks, gradient: Block | None) -> Block | None:
        """One layer's backward on the gradient of its output; the gradient of its input remains."""
        events = self.events[unit.kind]
        if unit.mode == NONE:
            alive = dict(zip(events.saved, held[1:], strict=False))
            held = held[:1]
        else:
            alive = dict(zip(events.saved, self._play_forward(events), strict=False))
        result = self._play_backward(events, alive, gradient, unit)
        self._drop(held)
        return result

    def _play_backward(
        self, events: LayerEvents, alive: dict[int, Block | None], gradient: Block | None, unit: _Unit
    ) -> Block | None:
        alive[events.incoming] = gradient
        for key, size in events.backward:
            if size > 0:
                alive[key] = self._take(size * self.tokens)
            else:
                self.memory.release(alive.pop(key, None))
        result = alive.pop(events.outgoing, None)
        self._weight_gradients(unit)
        self._drop(alive.values())
        return result

    def _weight_gradients(self, unit: _Unit | None) -> None:
        """Gradients of a unit's weights, unless they lie in a buffer or an earlier micro-batch made them."""
        if unit is None:
            return
        if self.sharded:
            reduced = float(np.asarray(self.setting.layout("reduce") * (unit.held.trained + unit.held.expert)))
            self._take_and_drop(reduced)
        if not self.persistent and not unit.gradients:
            unit.gradients = self._spread(unit, float(total(unit.states.gradients)))

    def _gather(self, unit: _Unit | None) -> Blocks:
        """A unit's weights, whole, where they are sharded."""
        if unit is None or not self.sharded:
            return []
        return [self._take(float(np.asarray(gathered_bytes(self.setting, unit.held))))]


def _sampled(layers: list[Any], most: int) -> list[Any]:
    """At most `most` of a stage's layers, evenly over their order: kinds and recompute modes keep their shares."""
    most = max(most, _LEAST_LAYERS)
    if len(layers) <= most:
        return layers
    return [layers[i * (len(layers) - 1) // (most - 1)] for i in range(most)]


def _size(blocks: Iterable[Block | None]) -> float:
    return float(sum(block.size for block in blocks if block is not None))


def _shares(setting: Setting, weights: tuple[Weight, ...]) -> list[float]:
    """Each tensor's share of a unit's parameters; adapters are pairs of small ones."""
    sizes = [float(np.asarray(local(setting, [w]))) / w.copies for w in weights for _ in range(w.copies)]
    if setting.adapters is not None:
        sizes += [1.0 for w in weights if is_target(w, setting.adapters, architecture(setting.model)) for _ in range(2)]
    whole = sum(sizes)
    return [size / whole for size in sizes] if whole else []


def reserved_ratio(
    job: Job,
    configuration: Configuration,
    calibration: Calibration,
    *,
    stage: int,
    frameworks: Mapping[str, FrameworkFacts] | None = None,
) -> float | None:
    """Reserved over allocated bytes of one stage; None where no order of operators is known.

    That is Megatron-LM's ledger, which lists what Transformer Engine's fused operators keep but not their temporaries:
    there the measured factor `fragmentation` stands. A CPU has no caching allocator.

    Raises:
        BrokenRule: the stages' layers do not add up to the model's.
    """
    facts = facts_of(job.training, frameworks)
    setting = Setting(job=job, strategy=Strategy.of(configuration), frameworks=facts)
    if job.device.kind == "cpu" or not bool(setting.eager):
        return None
    pieces = Pieces(setting=setting, calibration=calibration)
    layers = stage_layers(job.model, configuration)[stage]
    expandable = job.training.expandable_segments
    return Stage(pieces, configuration, stage, layers, expandable=expandable).run().ratio
