"""The order in which one layer's forward and backward allocate and free, from its tape."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from cost_models.memory.architectures import architecture
from cost_models.memory.blocks import Variant
from cost_models.memory.eager import _bytes, _variants
from cost_models.memory.forward import events as made_and_freed
from cost_models.memory.layer import written
from cost_models.memory.setting import Setting
from cost_models.memory.tape import Node, Run, Storage, Tape, Width
from cost_models.specs.model import LayerKind, ModelSpec

Event = tuple[int, Width | None]
"""A storage and its size when it is allocated, None when it is freed."""


@dataclass(frozen=True, slots=True)
class LayerEvents:
    """Numbered storages: bytes per token where one is allocated, 0 where it is freed."""

    forward: tuple[tuple[int, float], ...]
    backward: tuple[tuple[int, float], ...]
    saved: tuple[int, ...]
    incoming: int
    outgoing: int


@dataclass(frozen=True, slots=True)
class _Order:
    forward: tuple[Event, ...]
    backward: tuple[Event, ...]
    saved: tuple[int, ...]
    incoming: int
    outgoing: int


class Recorder(Run):
    """A backward that writes down what it allocates and frees."""

    def __init__(self, tape: Tape) -> None:
        super().__init__(tape)
        self.events: list[tuple[Storage, bool]] = []
        self._open: dict[int, Storage] = {}

    def new(self, size: Width) -> Storage:
        """A fresh gradient or temporary."""
        storage = super().new(size)
        self.events.append((storage, True))
        self._open[id(storage)] = storage
        return storage

    def free(self, storage: Storage) -> None:
        """Free a temporary before its node returns."""
        super().free(storage)
        self._close(storage)

    def _drop(self, storage: Storage) -> None:
        super()._drop(storage)
        if storage.holders == 0:
            self._close(storage)

    def _visit(self, node: Node) -> None:
        super()._visit(node)
        for storage in [s for s in self._open.values() if s.holders == 0]:
            self._close(storage)

    def _close(self, storage: Storage) -> None:
        self._open.pop(id(storage), None)
        self.events.append((storage, False))


@lru_cache(maxsize=256)
def _order(model: ModelSpec, kind: LayerKind, variant: Variant) -> _Order:
    tape, entry, output = written(model, architecture(model), variant, kind)
    numbers: dict[int, int] = {}

    def number(storage: Storage) -> int:
        return numbers.setdefault(id(storage), len(numbers))

    forward = made_and_freed(tape, entry, output)
    saved = [s for s, made in forward if made]
    gone = {id(s) for s, made in forward if not made}
    run = Recorder(tape)
    run.all(output)
    incoming = run.events[0][0]
    backward = run.events[1:]
    outgoing = entry.gradient
    keep = [*(s for s, _ in forward), *(s for s, _ in run.events)]  # holds every storage, so that ids stay unique
    result = _Order(
        forward=tuple((number(s), s.size if made else None) for s, made in forward),
        backward=tuple((number(s), s.size if made else None) for s, made in backward),
        saved=tuple(number(s) for s in saved if id(s) not in gone),
        incoming=number(incoming),
        outgoing=-1 if outgoing is None else number(outgoing),
    )
    assert keep
    return result


def layer_events(setting: Setting, kind: LayerKind) -> LayerEvents:
    """A layer's events for the one candidate of a setting."""
    variant = next(variant for mask, variant in _variants(setting, kind) if bool(np.all(mask)))
    order = _order(setting.model, kind, variant)
    sized: dict[bytes, float] = {}

    def size(width: Width | None) -> float:
        if width is None:
            return 0.0
        key = width.tobytes()
        if key not in sized:
            sized[key] = float(np.asarray(_bytes(setting, width)))
        return sized[key]

    return LayerEvents(
        forward=tuple((key, size(width)) for key, width in order.forward),
        backward=tuple((key, size(width)) for key, width in order.backward),
        saved=order.saved,
        incoming=order.incoming,
        outgoing=order.outgoing,
    )
