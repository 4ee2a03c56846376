"""Tensors that forward saves for backward: one entry per operator, and their sums by recompute mode.

A layer's entries are listed by `eager.layer` (Hugging Face modules: every operator saves its own inputs) or
`megatron.layer` (Transformer Engine's fused operators); all else in this package only sums them.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cost_models.arrays import Array, choose
from cost_models.memory.setting import Setting, Terms, once

NONE, SELECTIVE, FULL = range(3)
ALWAYS: Final = (NONE, SELECTIVE)
"""Recompute modes of entries that even selective recompute keeps."""
UNLESS_SELECTIVE: Final = (NONE,)
ONLY_SELECTIVE: Final = (SELECTIVE,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """What one operator keeps from forward to backward."""

    operator: str
    part: str
    """norm, attention, mlp, experts, router, shared_expert, adapter."""
    bytes_per_token: Any
    """On one rank, after tensor, sequence and expert parallelism."""
    modes: tuple[int, ...] = ALWAYS
    """Recompute modes that keep it."""

    @property
    def term(self) -> str:
        """The ledger's term that it counts in."""
        return {"attention": "attention_activations", "experts": "expert_activations", "router": "routing",
                "adapter": "adapter_activations"}.get(self.part, "activations")  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A moment of a layer's backward at which memory may peak."""

    name: str
    added: Any
    """Beyond what forward saved: gradients of activations and fp32 copies, less what is freed. [bytes per token and
    rank]"""
    scores: Any = 0.0
    """Gradients of materialised attention scores. [bytes per token and rank]"""
    own: Any = 0.0
    """The layer's parameters whose gradients exist by then. [parameters]"""
    copied: Any = 0.0
    """Those of them of which a copy in the compute dtype exists too. [parameters]"""
    passed: Any = 0.0
    """Frozen parameters with a gradient in the compute dtype on its way to their adapters, less those whose copies are
    gone. [parameters]"""


def saved_bytes(entries: tuple[Saved, ...], mode: int, *parts: str) -> Any:
    """Bytes per token of the entries that a mode keeps, of all parts or of some."""
    result: Any = 0.0
    for entry in entries:
        if mode in entry.modes and (not parts or entry.part in parts):
            result = result + entry.bytes_per_token
    return result


def saved_terms(setting: Setting, entries: tuple[Saved, ...], mode: int) -> Terms:
    """Bytes of one layer and micro-batch by term. [bytes]"""
    terms: Terms = {}
    for entry in entries:
        if mode in entry.modes:
            terms[entry.term] = terms.get(entry.term, 0.0) + entry.bytes_per_token * setting.tokens
    return terms


@once
def boundary_bytes(setting: Setting) -> Array:
    r"""The layer input that full recompute keeps, one every k layers. [bytes per layer and micro-batch]

    .. math:: b\,h\,T / k

    Source: arXiv:1604.06174; 2sbh per layer in arXiv:2205.05198, section 5.
    """
    width = choose(setting.autocast, 4.0, setting.activation)
    boundary = width * setting.model.hidden_size * setting.tokens / setting.sequence_shards
    return boundary / np.maximum(setting.column("recompute_interval"), 1)  # type: ignore[no-any-return]
