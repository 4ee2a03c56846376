"""What the instants are put together from: parameters, states and saved tensors, each computed once."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from cost_models.arrays import choose, somewhere
from cost_models.calibration import Calibration
from cost_models.memory import eager, megatron
from cost_models.memory.activations import Saved
from cost_models.memory.overheads import (
    bucket_bytes,
    budget_bytes,
    gathered_bytes,
    prefetched_bytes,
    small_bytes,
    workspace_terms,
)
from cost_models.memory.setting import Setting, Terms, once
from cost_models.memory.sharding import Held, embedding_held, head_held, layer_held
from cost_models.memory.states import States, states
from cost_models.schedule import BOTH, FIRST, LAST

WITH_EMBEDDING: Final = (FIRST, BOTH)
WITH_HEAD: Final = (LAST, BOTH)


@dataclass(frozen=True, kw_only=True)
class Pieces:
    """What the instants are put together from, computed once."""

    setting: Setting
    calibration: Calibration

    @property
    def remembered(self) -> dict[Any, Any]:
        """Where `once` keeps results."""
        return self.setting.remembered

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

    @once
    def head(self, stage_class: int) -> Held:
        """Parameters of the head: a last stage apart from the first has its own tied copy."""
        return head_held(self.setting, own_tied_copy=stage_class == LAST)

    @once
    def ends(self, stage_class: int) -> tuple[States | None, States | None]:
        """States of embedding and head of a stage class."""
        embedding = states(self.setting, self.embedding, end=True) if stage_class in WITH_EMBEDDING else None
        head = states(self.setting, self.head(stage_class), end=True) if stage_class in WITH_HEAD else None
        return embedding, head

    @cached_property
    def whole(self) -> Any:
        """Parameters of an average stage, before ZeRO. [parameters]"""
        counts = self.setting.layer_counts
        layers = sum(
            (c * (h.base + h.adapter) for c, h in zip(counts, self.layers, strict=True)),
            np.zeros_like(self.setting.tensor),
        )
        return (layers + self.embedding.base + self.head(BOTH).base) / self.setting.strategy.pipeline_parallel

    @cached_property
    def trained(self) -> Any:
        """Trained parameters of an average stage, before ZeRO. [parameters]"""
        counts = self.setting.layer_counts
        ends = (self.embedding, self.head(BOTH))
        parts = [*zip(counts, self.layers, strict=True), *((1, held) for held in ends)]
        trained = sum(
            (n * (h.trained + h.expert + h.adapter + h.module) for n, h in parts), np.zeros_like(self.setting.tensor)
        )
        return trained / self.setting.strategy.pipeline_parallel

    @cached_property
    def workspaces(self) -> Terms:
        """Kernel workspaces. [bytes]"""
        return workspace_terms(self.setting, self.calibration)

    @cached_property
    def buckets(self) -> Any:
        """Reduce buckets of an average stage. [bytes]"""
        return bucket_bytes(self.setting, self.trained)

    @cached_property
    def styles(self) -> tuple[bool, ...]:
        """Which ledgers occur among the candidates: eager, Megatron."""
        return somewhere(self.setting.eager), somewhere(~self.setting.eager)

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
        return choose(self.setting.eager, one, other)

    def both(self, one: Terms, other: Terms) -> Terms:
        """The eager ledger's terms or Megatron's, by candidate."""
        return {name: self.chosen(one.get(name, 0.0), other.get(name, 0.0)) for name in dict.fromkeys([*one, *other])}

    @cached_property
    def gathered_layers(self) -> tuple[Any, ...]:
        """One layer's weights, gathered, by kind. [bytes]"""
        return tuple(gathered_bytes(self.setting, held) for held in self.layers)

    @cached_property
    def partitioned(self) -> Any:
        """Those of `whole` in tensors that are large enough to be partitioned. [parameters]"""
        counts = self.setting.layer_counts
        small = sum((c * h.small for c, h in zip(counts, self.layers, strict=True)), np.zeros_like(self.setting.tensor))
        return self.whole - small / self.setting.strategy.pipeline_parallel

    @cached_property
    def gathered_budget(self) -> Any:
        """Gathered weights of a back end that keeps a budget of them, small ones apart. [bytes]"""
        return budget_bytes(self.setting, self.layers, self.partitioned)

    @cached_property
    def prefetched(self) -> Any:
        """A message of gathered weights that is still there beside them. [bytes]"""
        return prefetched_bytes(self.setting, self.partitioned)

    @once
    def gathered_ends(self, stage_class: int) -> Any:
        """Weights of embedding and head of a stage class, gathered. [bytes]"""
        ends: Any = 0.0
        if stage_class in WITH_EMBEDDING:
            ends = ends + gathered_bytes(self.setting, self.embedding)
        if stage_class in WITH_HEAD:
            ends = ends + gathered_bytes(self.setting, self.head(stage_class))
        return ends

    @once
    def small(self, kind: int) -> Any:
        """Small tensors of one layer that stay whole on every rank. [bytes]"""
        return small_bytes(self.setting, self.layers[kind])

    @cached_property
    def largest_layer(self) -> Any:
        """The largest layer's weights, gathered. [bytes]"""
        largest: Any = 0.0
        for gathered in self.gathered_layers:
            largest = np.maximum(largest, gathered)
        return largest
