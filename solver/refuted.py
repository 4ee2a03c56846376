"""What is known to have no configuration: an answer asks questions again with more values on offer."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from solver.domains import Value

if TYPE_CHECKING:
    from solver.caps import Caps
    from solver.problem import Problem

KEYS: Final = ("backend", "gradient_compression")
"""Decisions of which a question may offer more values than one before it: no row has two of them."""
Choice = tuple[Value, ...]
"""A value of each of the keys."""


@dataclass(frozen=True, slots=True)
class Refuted:
    """Questions of one answer with the choices that have no configuration."""

    _known: list[tuple[tuple[Any, ...], set[Choice]]] = field(default_factory=list)

    def add(self, problem: "Problem", caps: "Caps") -> None:
        """No choice on offer has a configuration under these caps."""
        self._of(problem, caps).update(_choices(problem))

    def open(self, problem: "Problem", caps: "Caps") -> "Problem | None":
        """The problem with the values that may still have one; None where none may."""
        known = self._of(problem, caps)
        left = [choice for choice in _choices(problem) if choice not in known]
        if not known or not left:
            return problem if left else None
        backends, compressions = map(set, zip(*left, strict=True))
        kept = (value for value in problem.resolved_domains["gradient_compression"] or () if value in compressions)
        return replace(
            problem,
            backends=tuple(name for name in problem.backends if name in backends),
            domains=problem.domains.with_values(gradient_compression=kept),
        )

    def _of(self, problem: "Problem", caps: "Caps") -> set[Choice]:
        asked = _asked(problem, caps)
        for known, choices in self._known:
            if known == asked:
                return choices
        self._known.append((asked, set()))
        return self._known[-1][1]


def _choices(problem: "Problem") -> Iterator[Choice]:
    domains = problem.resolved_domains
    backends = (name for name in problem.backends if name in (domains["backend"] or ()))
    return itertools.product(backends, domains["gradient_compression"] or ())


def _asked(problem: "Problem", caps: "Caps") -> tuple[Any, ...]:
    """All else that decides whether there is a configuration."""
    domains = {key: values for key, values in problem.open_domains.values.items() if key not in KEYS}
    wishes = tuple(wish for wish in problem.requirements if wish.key not in KEYS)
    return problem.job, wishes, domains, problem.limits, caps, problem.oom_risk, problem.arrangement
