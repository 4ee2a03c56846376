"""An autograd tape of sizes: what forward saves for backward, and what is alive at every moment of backward.

A layer is written down once, operator by operator, as its module computes it (`operators`, `blocks`); what is saved
and what backward holds then follow by the rules of PyTorch's engine, never from a formula of their own:

- nodes run in the reverse order of their creation; a node's incoming gradient lives until its function returns, its
  saved tensors until just after, its results until their own nodes have run;
- equal storages count once; a view keeps its whole storage;
- gradients that meet at one tensor are added out of place: both and their sum are alive (`InputBuffer::add`).

Source: PyTorch `torch/csrc/autograd/{engine.cpp,input_buffer.cpp}`, `tools/autograd/derivatives.yaml`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

BASES: Final = ("whole", "sequence", "tensor", "key_value", "expert", "routed", "score", "mask")
"""What a width is divided by or multiplied with: nothing; sequence-parallel ranks; tensor-parallel ranks; ranks that
share key-value heads; expert-tensor-parallel ranks times imbalance; imbalance; sequence length over tensor-parallel
ranks; sequence length."""
WHOLE, SEQUENCE, TENSOR, KEY_VALUE, EXPERT, ROUTED, SCORE, MASK = range(len(BASES))
Width: TypeAlias = NDArray[np.float64]
"""Elements per token, by basis."""


def width(elements: float, basis: int) -> Width:
    """`elements` per token of one basis."""
    result = np.zeros(len(BASES))
    result[basis] = elements
    return result


@dataclass(slots=True, eq=False)
class Storage:
    """Bytes that live and die together."""

    size: Width
    holders: int = 0
    part: str = ""
    operator: str = ""


@dataclass(slots=True, eq=False)
class Value:
    """A tensor: a storage, or a view of one."""

    width: Width
    itemsize: float
    storage: Storage
    wanted: bool = True
    """Whether its gradient is needed."""
    gradient: Storage | None = None

    @property
    def size(self) -> Width:
        """Its own bytes per token, by basis."""
        return self.width * self.itemsize


Backward: TypeAlias = Callable[["Run", Sequence[Storage | None]], Sequence[Storage | None]]
"""From the gradients of a node's outputs to those of its inputs, allocating on the way."""


@dataclass(slots=True, eq=False)
class Node:
    """One operator of forward that backward will visit."""

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    saved: tuple[Storage, ...]
    backward: Backward


@dataclass(frozen=True, slots=True, kw_only=True)
class Alive:
    """A moment of backward."""

    size: Width
    """Saved tensors and gradients of activations."""
    weights: tuple[str, ...]
    """Weights of the layer whose gradients exist."""
    casts: tuple[str, ...] = ()
    """Weights of which a second copy in the compute dtype exists at this moment."""
    passed: tuple[str, ...] = ()
    """Weights whose gradients exist at this moment only, on the way to their adapters."""
    released: tuple[str, ...] = ()
    """Weights whose copies with their adapters added are gone."""


@dataclass(slots=True)
class Tape:
    """Forward of one layer. `record` is the only way in."""

    nodes: list[Node] = field(default_factory=list)
    part: str = ""
    frozen_inputs: list[Storage] = field(default_factory=list)
    """What is kept for products that need no gradient of their weight."""
    locals: list[tuple[int, Storage]] = field(default_factory=list)
    """Until which node a variable of the module's code holds a tensor beyond its last use."""

    def until_now(self, *values: Value) -> None:
        """Variables that the code holds up to here."""
        self.locals += [(len(self.nodes), value.storage) for value in values]

    def new(self, elements: Width, itemsize: float, *, wanted: bool = True) -> Value:
        """A fresh tensor."""
        return Value(elements, itemsize, Storage(elements * itemsize), wanted)

    def record(
        self,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        saved: Sequence[Value],
        backward: Backward,
        name: str,
        *,
        trained: bool = False,
    ) -> None:
        """Add a node, unless neither its inputs nor a weight of its own want a gradient."""
        if not trained and not any(value.wanted for value in inputs):
            for value in outputs:
                value.wanted = False
            return
        storages = tuple(dict.fromkeys(value.storage for value in saved))
        for storage in storages:
            storage.holders += 1
            if not storage.part:
                storage.part, storage.operator = self.part, name
        self.nodes.append(Node(inputs, outputs, storages, backward))

    def saved(self) -> list[Storage]:
        """Every storage that forward keeps, once."""
        return list(dict.fromkeys(storage for node in self.nodes for storage in node.saved))

    def backward(self, output: Value) -> list[Alive]:
        """Run backward from the output's gradient; every moment that no other contains."""
        return Run(self).all(output)


class Run:
    """One backward over a tape."""

    def __init__(self, tape: Tape) -> None:
        self.nodes = tape.nodes
        self.live: Width = sum((storage.size for storage in tape.saved()), np.zeros(len(BASES)))
        self.weights: list[str] = []
        self.moments: list[Alive] = []
        self.before: Width | None = None
        """Gradients alive when the first saved tensor is needed: a recomputed forward runs beside them."""
        self._saved: Width = self.live
        self._fresh: list[Storage] = []
        self._casts: list[str] = []
        self._passed: list[str] = []
        self._released: list[str] = []

    def all(self, output: Value) -> list[Alive]:
        """Visit every node."""
        output.gradient = self._hold(self.new(output.size))
        self.note()
        for node in reversed(self.nodes):
            self._visit(node)
        return _largest(self.moments)

    def new(self, size: Width) -> Storage:
        """A fresh gradient or temporary; what the node does not hand on is freed when it returns."""
        storage = Storage(size)
        self.live = self.live + size
        self._fresh.append(storage)
        return storage

    def free(self, storage: Storage) -> None:
        """Free a temporary before its node returns."""
        self.note()
        self._fresh.remove(storage)
        self.live = self.live - storage.size

    def produced(self, weight: str, *, cast: bool = False) -> None:
        """A weight's gradient exists from now on; that of a cast weight is cast back once its product is done."""
        self.weights.append(weight)
        if cast:
            self._casts.append(weight)

    def passed(self, weight: str) -> None:
        """A weight's gradient exists until the node is done."""
        self._passed.append(weight)

    def note(self, *casts: str) -> None:
        """This may be the largest moment."""
        names = {"weights": self.weights, "casts": casts, "passed": self._passed, "released": self._released}
        self.moments.append(Alive(size=self.live, **{key: tuple(value) for key, value in names.items()}))

    def _hold(self, storage: Storage) -> Storage:
        storage.holders += 1
        if storage in self._fresh:
            self._fresh.remove(storage)
        return storage

    def _drop(self, storage: Storage) -> None:
        storage.holders -= 1
        if storage.holders == 0:
            self.live = self.live - storage.size

    def _visit(self, node: Node) -> None:
        gradients = [value.gradient for value in node.outputs]
        if all(gradient is None for gradient in gradients):
            return
        if node.saved and self.before is None:
            self.before = self.live - self._saved
        results = node.backward(self, gradients)
        self.note()
        self._released, self._passed = [*self._released, *self._passed], []
        for result in results:
            if result is not None:
                self._hold(result)
        for temporary in self._fresh:
            self.live = self.live - temporary.size
        self._fresh = []
        for value, gradient in zip(node.outputs, gradients, strict=True):
            value.gradient = None
            if gradient is not None:
                self._drop(gradient)
        for storage in node.saved:
            self._drop(storage)
        for value, result in zip(node.inputs, results, strict=True):
            if result is not None:
                self._accumulate(value, result)
        if self._casts:
            self.note(*self._casts)
            self._casts = []

    def _accumulate(self, value: Value, result: Storage) -> None:
        if not value.wanted:
            self._drop(result)
        elif value.gradient is None:
            value.gradient = result
        else:
            total = self._hold(self.new(value.size))
            self.note()
            self._drop(value.gradient)
            self._drop(result)
            value.gradient = total


def _largest(moments: list[Alive]) -> list[Alive]:
    """The moments that are not below another in every basis, with no more gradients."""
    kept: list[Alive] = []
    for moment in sorted(moments, key=lambda m: -float(m.size.sum())):
        have = set(moment.weights)
        if not any(
            have <= set(k.weights)
            and set(moment.casts) <= set(k.casts)
            and set(moment.passed) <= set(k.passed)
            and set(k.released) <= set(moment.released)
            and bool(np.all(k.size >= moment.size))
            for k in kept
        ):
            kept.append(moment)
    return kept


def describe(alive: Alive) -> dict[str, Any]:
    """A moment in words, for reading."""
    return {name: size for name, size in zip(BASES, alive.size, strict=True) if size} | {"weights": alive.weights}
