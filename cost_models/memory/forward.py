"""What one layer's forward holds, operator by operator, from its tape."""

import numpy as np

from cost_models.memory.tape import BASES, Storage, Tape, Value, Width

Event = tuple[Storage, bool]
"""A storage, and whether it is made or freed."""


def events(tape: Tape, entry: Value, output: Value, *, keeps: bool = True) -> list[Event]:
    """Outputs are made by their node and freed after their last use, unless backward needs them (`keeps`)."""
    held = {id(storage) for storage in tape.saved()} if keeps else set()
    held |= {id(output.storage), id(entry.storage)}
    last: dict[int, int] = {}
    for at, node in enumerate(tape.nodes):
        for value in (*node.inputs, *node.outputs):
            last[id(value.storage)] = at
        for storage in node.saved:
            last.setdefault(id(storage), at)
    for at, storage in tape.locals:
        last[id(storage)] = max(last.get(id(storage), 0), at - 1)
    leaving: dict[int, list[Storage]] = {}
    seen = {id(entry.storage), id(output.storage)}
    found: list[Event] = []
    for at, node in enumerate(tape.nodes):
        for storage in (*(v.storage for v in node.outputs), *node.saved):
            if id(storage) not in seen:
                seen.add(id(storage))
                found.append((storage, True))
                if id(storage) not in held:
                    leaving.setdefault(last[id(storage)], []).append(storage)
        found += [(storage, False) for storage in leaving.pop(at, ())]
    return found


def live(tape: Tape, entry: Value, output: Value, *, keeps: bool) -> list[Width]:
    """Bytes per token alive after each allocation, the layer's input apart; none is below another."""
    alive: Width = np.zeros(len(BASES))
    found: list[Width] = []
    for storage, made in events(tape, entry, output, keeps=keeps):
        alive = alive + storage.size if made else alive - storage.size
        if made:
            found.append(alive)
    found.append(alive + output.size)
    kept: list[Width] = []
    for size in sorted(found, key=lambda each: -float(each.sum())):
        if not any(bool(np.all(other >= size)) for other in kept):
            kept.append(size)
    return kept
