"""Pairs of relaxations: two changes that help together where one of them alone does not, or where less of it then does.

Two switches are a pair where neither is enough; a switch and a number where the switch is not enough and less of the
number then is. Of two numbers, the one that alone would have to move furthest moves half as far, the other as little
as it must, and the first again as little as it must beside that. Every number is feasible where it stands and
infeasible one unit before, the other change being made.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from solver.feasibility import feasible_or_none
from solver.levers import NUMBERS, SWITCHES, Number, Switch
from solver.problem import Problem
from solver.relaxations import Relaxation, moved

BETWEEN = (("device_memory", "sequence_length"), ("gpus", "sequence_length"), ("device_memory", "gpus"))
"""Pairs of numbers, the one that is halved first."""


def pairs(problem: Problem, singles: Sequence[Relaxation]) -> Iterator[Relaxation]:
    """Pairs of the levers of an infeasible problem that were tried alone, given what each of them did."""
    alone = {single.lever: single for single in singles}
    weak = [s for s in SWITCHES if s.name in alone and not alone[s.name].feasible]
    numbers = [n for n in NUMBERS if n.name in alone]
    yield from _switches(problem, weak)
    for switch, number in itertools.product(weak, numbers):
        yield from _with_switch(problem, switch, number, alone[number.name])
    by_name = {number.name: number for number in numbers}
    for first, second in BETWEEN:
        if first in by_name and second in by_name:
            yield from _between(problem, by_name[first], by_name[second], alone)


def _switches(problem: Problem, weak: Sequence[Switch]) -> Iterator[Relaxation]:
    """Two switches, neither of which is enough."""
    for one, other in itertools.combinations(weak, 2):
        changed = one.change(problem)
        changed = changed and other.change(changed)
        answer = feasible_or_none(changed) if changed is not None else None
        if answer:
            yield Relaxation(
                lever=f"{one.name}+{other.name}",
                change=f"{one.text}, and {other.text}",
                steps=((one.name, 0), (other.name, 0)),
                feasible=True,
                configuration=answer.configuration,
            )


def _with_switch(problem: Problem, switch: Switch, number: Number, alone: Relaxation) -> Iterator[Relaxation]:
    """A switch that is not enough, and the least of a number beside it; only where that is less than alone."""
    changed = switch.change(problem)
    if changed is None or (alone.feasible and alone.units <= 1):
        return
    found = moved(changed, number, alone.units - 1 if alone.feasible else None)
    if found.feasible and (not alone.feasible or found.units < alone.units):
        yield _joined(found, switch.name, f"{switch.text}, and {found.change}", ((switch.name, 0),))


def _between(problem: Problem, first: Number, second: Number, alone: Mapping[str, Relaxation]) -> Iterator[Relaxation]:
    """Half of what the first number would need alone, with the least of the second; then the least of the first."""
    whole = alone[first.name]
    if not whole.feasible or whole.units <= 1:
        return
    half = first.at(problem, (whole.units + 1) // 2)
    beside = moved(half, second) if half is not None else None
    if beside is None or not beside.feasible or 0 < alone[second.name].units <= beside.units:
        return
    rest = second.at(problem, beside.units)
    least = moved(rest, first) if rest is not None else None
    if least is not None and least.feasible and not _works(problem, first, least.units, second, beside.units - 1):
        yield _joined(least, second.name, f"{least.change}, and {beside.change}", beside.steps)


def _works(problem: Problem, first: Number, units: int, second: Number, others: int) -> bool:
    """Whether both numbers moved so far leave a configuration."""
    changed = first.at(problem, units)
    changed = second.at(changed, others) if changed is not None and others else changed
    return changed is not None and bool(feasible_or_none(changed))


def _joined(found: Relaxation, other: str, change: str, steps: tuple[tuple[str, int], ...]) -> Relaxation:
    """A change with the one that was made before it."""
    return replace(found, lever=f"{other}+{found.lever}", change=change, steps=(*found.steps, *steps))
