"""Why not? What a choice would cost against the plan, term by term, or the rule that forbids it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cost_models.errors import BrokenRule
from planner.plan import Plan
from planner.prediction import rounded

_NEXT: Final = re.compile(r",(?=\s*[A-Za-z_][\w.]*\s*=)")


def pins(choice: str) -> list[str]:
    """The single choices of `tensor_parallel=8,zero_stage=3`; commas inside a value stay.

    Raises:
        BrokenRule: a key is pinned twice.
    """
    parts = [part.strip() for part in _NEXT.split(choice)]
    stated: dict[str, str] = {}
    for part in parts:
        key = part.partition("=")[0].strip().removeprefix("constraints.")
        if key in stated:
            raise BrokenRule(f"--why-not {choice!r} pins {key} twice: {stated[key]!r} and {part!r}")
        stated[key] = part
    return parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """A choice against the plan: differences are of the best plan with it minus the plan."""

    choice: str
    forbidden: str | None = None
    """The rule that leaves nothing with it."""
    value: float | None = None
    """Of the first objective, in its unit."""
    share: float | None = None
    """The same, relative to the plan's."""
    step_seconds: float | None = None
    conservative_bytes: int | None = None
    seconds: dict[str, float] | None = None
    """Exposed time by term; they sum to `step_seconds`."""
    bytes: dict[str, int] | None = None
    """Allocated memory by term, each plan at its own fullest instant."""


def against(choice: str, plan: Plan, rival: Plan | str) -> Against:
    """The comparison; `rival` is the best plan with the choice, or the text of the rule that it breaks."""
    if isinstance(rival, str):
        return Against(choice=choice, forbidden=rival)
    if rival.prediction is None:
        conflict = rival.infeasibility.conflict if rival.infeasibility is not None else ()
        return Against(choice=choice, forbidden="; ".join(demand.text for demand in conflict) or "nothing is legal")
    if plan.prediction is None or plan.optimality is None or rival.optimality is None:
        return Against(choice=choice)
    ours, theirs = plan.prediction, rival.prediction
    value = rival.optimality.value - plan.optimality.value
    return Against(
        choice=choice,
        value=rounded(value),
        share=rounded(value / plan.optimality.value) if plan.optimality.value else None,
        step_seconds=rounded(theirs.time.step_seconds - ours.time.step_seconds),
        conservative_bytes=theirs.memory.conservative_bytes - ours.memory.conservative_bytes,
        seconds=_terms(ours.time.breakdown_seconds, theirs.time.breakdown_seconds),
        bytes={
            term: int(size) for term, size in _terms(ours.memory.breakdown_bytes, theirs.memory.breakdown_bytes).items()
        },
    )


def _terms(ours: Mapping[str, float], theirs: Mapping[str, float]) -> dict[str, float]:
    """Differences by term, the largest first; terms that are equal are left out."""
    names = dict.fromkeys([*ours, *theirs])
    found = {name: rounded(theirs.get(name, 0) - ours.get(name, 0)) for name in names}
    return dict(sorted(((n, d) for n, d in found.items() if d), key=lambda item: (-abs(item[1]), item[0])))
