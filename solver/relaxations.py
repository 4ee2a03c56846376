"""Relaxations: single changes of an infeasible job, each verified on both sides.

A switch (LoRA, another optimizer, permission to offload) is feasible or it is not. A number is moved by growing steps
until a configuration exists, then halved back to the least change with one: feasible there, infeasible one unit
before. Memory of the devices is not tried out: the least shortfall of all configurations says what is needed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cost_models.errors import SpecError
from cost_models.ledger import estimate
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
    if reach is not None and not _works(problem, lever, reach):
        return Relaxation(lever=lever.name, change=f"{lever.text(problem, reach)}: still infeasible", feasible=False)
    found = _device_memory(problem, lever) if lever.name == "device_memory" else None
    if found is not None and _works(problem, lever, found[0] - 1):
        # What the allocator wastes depends on the size of a card: a larger one may need less than was measured.
        reach, found = found[0] - 1, None
    units, chosen = found or _least(problem, lever, reach)
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
    """From the least shortfall: no configuration lacks less, and one that lacks it fits with that much more.

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
    grown = lever.at(problem, units)
    if units > lever.most(problem) or grown is None:
        return None
    ledger = estimate(grown.job, least.configuration, grown.calibration, oom_risk=grown.oom_risk).memory
    return (units, least.configuration) if ledger.fits else None


def _works(problem: Problem, lever: Number, units: int) -> Configuration | None:
    """A configuration with the number moved by so many units."""
    changed = lever.at(problem, units)
    return None if changed is None else feasible_or_none(changed).configuration


def _least(problem: Problem, lever: Number, reach: int | None) -> tuple[int, Configuration | None]:
    """Double the change until it works, then halve back. Below the least working change lies a verified failure.

    `reach` is known to work.
    """
    known: dict[int, Configuration | None] = {0: None}

    def works(units: int) -> bool:
        if units not in known:
            known[units] = _works(problem, lever, units)
        return known[units] is not None

    most, low, high = max(lever.most(problem), 0), 0, 0
    if reach is not None:
        return _halved(works, known, 0, reach)
    anywhere = None if lever.anywhere is None else lever.anywhere(problem)
    if most < 1 or (anywhere is not None and not feasible_or_none(anywhere)):
        return most, None
    if lever.monotone and most > 1 and not works(most):
        return most, None
    trials = lever.trials(problem) or [2**k for k in range(most.bit_length()) if 2**k < most] + [most]
    for high in trials:
        if works(high):
            break
        low = high
    return _halved(works, known, low, high) if works(high) else (most, None)


def _halved(
    works: Callable[[int], bool], known: Mapping[int, Configuration | None], low: int, high: int
) -> tuple[int, Configuration | None]:
    """Between a failure and what works, the least that works below which it does not."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if works(middle) else (middle, high)
    return high, known[high] if works(high) else None
