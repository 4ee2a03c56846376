"""Relaxations: single changes of an infeasible job, each verified on both sides.

A switch (LoRA, another optimizer, permission to offload) is feasible or it is not. A number is halved between a failure
and what works, to the least change with a configuration: feasible there, infeasible one unit
before. Memory of the devices is not tried out: the least shortfall of all configurations says what is needed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cost_models.errors import SpecError
from cost_models.memory import memory_ledger
from cost_models.specs.configuration import Configuration
from solver.feasibility import feasible_or_none
from solver.levers import GIB, NUMBERS, OFFLOADS, RECOMPUTATION, SWITCHES, Number, Switch
from solver.problem import Problem
from solver.shortfall import least_shortfall

LEVERS: Final = tuple(lever.name for lever in (*SWITCHES, *NUMBERS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaxation:
    """One change, and what the solver said about it."""

    lever: str
    change: str
    """In the request's own words: `training.sequence_length: 2048 (instead of 4096)`."""
    feasible: bool
    value: int | float | str | None = None
    """The least change that works; None when none within reach does."""
    steps: tuple[tuple[str, int], ...] = ()
    """Every lever of the change, a number with the units it was moved by, a switch with 0."""
    infeasible_before: bool = False
    """For numbers: verified that one unit less of the change is infeasible."""
    configuration: Configuration | None = None
    settings: tuple[str, ...] = ()
    """The change as `KEY=VALUE`, fit for `--set`."""

    @property
    def units(self) -> int:
        """How far the first number was moved."""
        return next((units for _, units in self.steps), 0)


def relaxations(problem: Problem, levers: Sequence[str] = LEVERS) -> tuple[Relaxation, ...]:
    """Each lever tried alone on an infeasible problem; levers that do not apply to it are left out."""
    by_name: Mapping[str, Switch | Number] = {lever.name: lever for lever in (*SWITCHES, *NUMBERS)}
    return tuple(found for name in levers for found in _tried(problem, by_name[name]))


def _tried(problem: Problem, lever: Switch | Number) -> Iterator[Relaxation]:
    if isinstance(lever, Number):
        if not (lever.one_pool and len(problem.job.cluster.pools) > 1):
            yield moved(problem, lever)
        return
    changed = lever.change(problem)
    if changed is not None:
        answer = feasible_or_none(changed)
        yield Relaxation(
            lever=lever.name,
            change=lever.text,
            steps=((lever.name, 0),),
            feasible=bool(answer),
            value=lever.text.split(": ")[1],
            configuration=answer.configuration,
        )


def without_wishes(problem: Problem, texts: Sequence[str]) -> Iterator[Relaxation]:
    """Each of these wishes dropped alone; wishes against offload or recomputation have levers of their own."""
    for wish in problem.requirements:
        if wish.text not in texts or (wish.key in OFFLOADS and not wish.admits(True)) or wish.key in RECOMPUTATION:
            continue
        answer = feasible_or_none(problem.without(wish))
        yield Relaxation(
            lever=wish.key,
            change=f"without {wish.text}",
            feasible=bool(answer),
            configuration=answer.configuration,
        )


def moved(problem: Problem, lever: Number, reach: int | None = None) -> Relaxation:
    """The least change of a number that works, of at most `reach` units where given, below which it does not."""
    start = None if reach is None else _works(problem, lever, reach)
    if reach is not None and start is None:
        return Relaxation(lever=lever.name, change=f"{lever.text(problem, reach)}: still infeasible", feasible=False)
    found = _device_memory(problem, lever) if lever.name == "device_memory" else None
    if found is not None and (better := _works(problem, lever, found[0] - 1)):
        # What the allocator wastes depends on the size of a card: a larger one may need less than was measured.
        reach, start, found = found[0] - 1, better, None
    units, chosen = found or _least(problem, lever, None if reach is None or start is None else (reach, start))
    if chosen is None:
        return Relaxation(lever=lever.name, change=f"{lever.text(problem, units)}: still infeasible", feasible=False)
    return Relaxation(
        lever=lever.name,
        change=lever.text(problem, units),
        feasible=True,
        value=lever.value(problem, units),
        steps=((lever.name, units),),
        infeasible_before=True,
        configuration=chosen,
    )


def _device_memory(problem: Problem, lever: Number) -> tuple[int, Configuration] | None:
    """From the least shortfall: what lacks least is what fits first, but for what the allocator wastes.

    None where more memory on the devices is not all that matters: a limit of the user's, a CPU, several pools.
    """
    pools = problem.job.cluster.pools
    if problem.limits.max_memory_bytes is not None or len(pools) > 1 or pools[0].device.kind != "gpu":
        return None
    try:
        least = least_shortfall(problem, step=GIB)
    except SpecError:
        return None
    if least is None or least.missing_bytes <= 0:
        return None
    units = int(-(-least.missing_bytes // GIB))
    if units > lever.most(problem) or not _fits(problem, lever, units, least.configuration):
        return None
    return _room(problem, lever, units, least.configuration), least.configuration


def _works(problem: Problem, lever: Number, units: int) -> Configuration | None:
    """A configuration with the number moved by so many units."""
    changed = lever.at(problem, units)
    return None if changed is None else feasible_or_none(changed).configuration


def _fits(problem: Problem, lever: Number, units: int, chosen: Configuration) -> bool:
    """Whether a configuration fits with the number moved by so many units, by the ledger."""
    changed = lever.at(problem, units)
    if changed is None:
        return False
    ledger, most = memory_ledger(changed.job, chosen, changed.calibration, oom_risk=changed.oom_risk), changed.limits
    held = most.max_host_memory_bytes is None or ledger.host_node_bytes <= most.max_host_memory_bytes
    return held and ledger.fits


def _room(problem: Problem, lever: Number, units: int, chosen: Configuration) -> int:
    """The least units of room in which a configuration fits that fits in so many; nothing is searched."""
    low = 0
    while units - low > 1:
        middle = (low + units) // 2
        low, units = (low, middle) if _fits(problem, lever, middle, chosen) else (middle, units)
    return units


def _least(
    problem: Problem, lever: Number, start: tuple[int, Configuration] | None
) -> tuple[int, Configuration | None]:
    """Between nothing and what works, the least change that works; below it lies a verified failure.

    `start` is known to work. More of what is not monotone is tried until it works, twice as much each time.
    """
    known: dict[int, Configuration | None] = {0: None}

    def works(units: int) -> bool:
        if units not in known:
            known[units] = _works(problem, lever, units)
        return known[units] is not None

    def least(high: int) -> int:
        chosen = known[high]
        if not lever.room or chosen is None:
            return high
        room = _room(problem, lever, high, chosen)
        known[room] = chosen
        return room

    if start is not None:
        known[start[0]] = start[1]
        return _halved(works, least, known, (0, start[0]))
    most, low, high = max(lever.most(problem), 0), 0, 0
    anywhere = None if lever.anywhere is None else lever.anywhere(problem)
    if most < 1 or (anywhere is not None and not feasible_or_none(anywhere)):
        return most, None
    if lever.monotone:
        return _halved(works, least, known, (0, most)) if works(most) else (most, None)
    trials = lever.trials(problem) or [2**k for k in range(most.bit_length()) if 2**k < most] + [most]
    for high in trials:
        if works(high):
            break
        low = high
    return _halved(works, least, known, (low, high)) if works(high) else (most, None)


def _halved(
    works: Callable[[int], bool],
    least: Callable[[int], int],
    known: Mapping[int, Configuration | None],
    between: tuple[int, int],
) -> tuple[int, Configuration | None]:
    """Between a failure and what works, the least that works below which it does not.

    Where what was found needs less than it had, it may be all but the least: less is tried in growing steps first.
    """
    low, high, step = between[0], least(between[1]), 1
    near = high < between[1]
    while high - low > 1:
        middle = max((low + high) // 2, high - step) if near else (low + high) // 2
        if works(middle):
            high, step = least(middle), 2 * step
        else:
            low, near = middle, False
    return high, known[high]
