"""What one layer's tape says, and the head's: saved tensors and moments by variant, each written once.

Widths are elements' bytes per token by basis; `eager` turns them into numbers of every candidate.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from cost_models.memory.architectures import architecture
from cost_models.memory.blocks import Blocks, Variant
from cost_models.memory.forward import live
from cost_models.memory.layer import written
from cost_models.memory.tape import SEQUENCE, TENSOR, Alive, Run, Width, width
from cost_models.parameters import layer_weights
from cost_models.specs.model import LayerKind, ModelSpec


@dataclass(frozen=True, slots=True, eq=False)
class Written:
    """What a variant of a layer's tape says."""

    saved: dict[tuple[str, str], Width]
    """Kept by forward, by part and operator."""
    moments: tuple[Alive, ...]
    """Moments of backward, less what forward keeps."""
    repeats: tuple[Width, ...]
    """Moments of a forward that backward repeats, beside the gradients so far, less what forward keeps."""
    forward: tuple[Width, ...]
    """Moments of a forward that keeps nothing but its input."""
    excess: tuple[Width, ...]
    """Moments of a forward, less what it keeps."""


@lru_cache(maxsize=256)
def layer_written(model: ModelSpec, kind: LayerKind, variant: Variant) -> Written:
    """What one layer's tape says."""
    tape, entry, output = written(model, architecture(model), variant, kind)
    saved: dict[tuple[str, str], Width] = {}
    for storage in tape.saved():
        key = (storage.part, storage.operator)
        saved[key] = saved.get(key, 0.0) + storage.size
    if tape.frozen_inputs:
        inputs = dict.fromkeys(tape.frozen_inputs)
        saved["held", "frozen_inputs"] = sum((storage.size for storage in inputs), width(0.0, SEQUENCE))
    total = sum(size for (part, _), size in saved.items() if part != "held")
    run = Run(tape)
    moments = run.all(output)
    before = output.size if run.before is None else run.before
    kept = total - saved.get(("boundary", "layer_input"), 0.0)
    return Written(
        saved,
        tuple(replace(m, size=m.size - total) for m in moments),
        tuple(size + before - kept for size in live(tape, entry, output, keeps=True)),
        tuple(live(tape, entry, output, keeps=False)),
        tuple(size - kept for size in live(tape, entry, output, keeps=True)),
    )


@lru_cache(maxsize=256)
def head_written(model: ModelSpec, variant: Variant) -> tuple[Width, Width, Width]:
    """What the final norm keeps, what norm and head keep together, and the fullest moment of the norm's backward."""
    sizes = []
    for with_head in (False, True):
        blocks = Blocks(model, architecture(model), variant)
        x = blocks.tape.new(width(model.hidden_size, SEQUENCE), 4.0 if variant.autocast else variant.itemsize)
        out = blocks.norm(x, width(1.0, SEQUENCE)) if model.final_norm else x
        if with_head:
            blocks.linear(out, "lm_head", width(model.vocab_size, TENSOR))
        sizes.append(sum((storage.size for storage in blocks.tape.saved()), width(0.0, SEQUENCE)))
        if not with_head:
            moments = blocks.tape.backward(out)
            backward = max((moment.size for moment in moments), key=lambda size: float(size.sum()))
    return sizes[0], sizes[1], backward


@lru_cache(maxsize=256)
def unneeded(model: ModelSpec, kind: LayerKind, variant: Variant) -> Width:
    """What a layer does not keep when nothing below it is trained."""
    sizes = []
    for first in (False, True):
        tape, _, _ = written(model, architecture(model), variant, kind, first=first)
        sizes.append(sum((storage.size for storage in tape.saved()), width(0.0, SEQUENCE)))
    return sizes[0] - sizes[1]


@lru_cache(maxsize=256)
def outermost(model: ModelSpec, kind: LayerKind, variant: Variant, length: int) -> tuple[Alive, ...]:
    """Moments that are the largest for some number of tokens: the upper hull over bytes a token and gradients.

    One hull for whole tensors and one for tensors split in eight.
    """
    moments = layer_written(model, kind, variant).moments
    counts = {w.name: w.count for w in layer_weights(model, kind)}

    def worth_of(*names: str) -> int:
        return sum(counts.get(name, 0) for name in fused_with(model, *names))

    own = [worth_of(*m.weights, *m.passed) - worth_of(*m.released) for m in moments]
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


def fused_with(model: ModelSpec, *names: str) -> frozenset[str]:
    """Names of all the weights that products' names stand for."""
    facts, found = architecture(model), set(names)
    if facts.projections == "fused" and "q_proj" in found:
        found |= {"k_proj", "v_proj"}
    for prefix in ("", "shared_expert."):
        if facts.fused_gate and f"{prefix}gate_proj" in found:
            found.add(f"{prefix}up_proj")
    if "experts.up_proj" in found:
        found.add("experts.gate_proj")
    return frozenset(found)
