"""Which pipeline stage holds how many layers, from what a row states."""

import re

from planner.datasets.unusable import Unusable
from planner.measurement import Measurement


def stage_layers(row: Measurement, layers: int, stages: int) -> tuple[int, ...]:
    """Layers of every stage, first to last.

    Stated layouts are taken; a small first stage is mirrored by the last where only then the rest divides. Else layers
    are shared evenly. Where they do not divide, the embedding and the head count as one layer each if that divides
    (Megatron-LM's account-for-embedding and account-for-loss), and else the first stages hold one more.

    Raises:
        Unusable: the stated layout does not add up.
    """
    stated = row.facts.get("stage_layers") or _of_layout(row.facts.get("pipeline_layout", ""), stages)
    if stated:
        split = tuple(int(part) for part in stated.split("+") if part.isdecimal())
        if len(split) != stages or sum(split) != layers or min(split) < 1:
            raise Unusable("stated layers of the stages do not add up")
        return split
    first = row.facts.get("first_stage_layers", "")
    if first.isdecimal() and stages > 2 and 0 < int(first) * stages < layers:
        middle = layers - 2 * int(first)
        if (layers - int(first)) % (stages - 1) and middle % (stages - 2) == 0:
            return (int(first), *evenly(middle, stages - 2), int(first))
    if first.isdecimal() and stages > 1 and 0 < int(first) <= layers - (stages - 1):
        return (int(first), *evenly(layers - int(first), stages - 1))
    if layers < stages:
        raise Unusable("more stages than layers")
    if layers % stages and (layers + 2) % stages == 0 and stages > 2:
        share = (layers + 2) // stages
        return (share - 1, *[share] * (stages - 2), share - 1)
    return evenly(layers, stages)


def evenly(layers: int, stages: int) -> tuple[int, ...]:
    """Equal shares, the first stages one more where they do not divide."""
    return tuple(layers // stages + (1 if stage < layers % stages else 0) for stage in range(stages))


def _of_layout(text: str, stages: int) -> str:
    """Megatron-LM's layout string: `E` embedding, `t` layer, `m` multi-token head, `L` loss, `|` next chunk.

    Chunks are dealt to the stages in turn, so that stage s holds chunks s, s + p, s + 2p, ...
    """
    if not text:
        return ""
    expanded = text
    while match := re.search(r"\(([^()]*)\)\*(\d+)", expanded):
        expanded = expanded[: match.start()] + match.group(1) * int(match.group(2)) + expanded[match.end() :]
    expanded = re.sub(r"([A-Za-z|])\*(\d+)", lambda m: m.group(1) * int(m.group(2)), expanded)
    chunks = [chunk.count("t") for chunk in expanded.split("|")]
    if len(chunks) % stages:
        return ""
    return "+".join(str(sum(chunks[stage::stages])) for stage in range(stages))
