"""Forbidding rules: why nothing is legal. For each back end a minimal set of rules that together leave no row.

Found by deletion, as conflicts are: rules are dropped one at a time while the rest still forbids everything. Without
any one of those that remain, some row is legal.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cost_models.specs.choices import Backend
from solver.domains import DEGREES, Value
from solver.legality import Rule, job_facts, legality
from solver.part import with_parts
from solver.problem import Problem
from solver.space import BackendSpace, backend_space, spaces

MOST_ROWS: Final = 5_000_000
"""Larger spaces are not filtered again for every rule: their rules are then all that dropped something."""
MOVES: Final[Mapping[str, frozenset[str]]] = {
    "offload": frozenset({"optimizer_offload", "parameter_offload", "activation_offload"}),
    "optimizer": frozenset({"optimizer"}),
    "lora": frozenset({"method"}),
    "qlora": frozenset({"method"}),
    "gradient_compression": frozenset({"gradient_compression"}),
    "gpus": frozenset({*DEGREES, "gpus", "gpus_per_node"}),
    "sequence_length": frozenset({"sequence_length"}),
    "global_batch_size": frozenset({"micro_batch_size", "gradient_accumulation_steps", "data_parallel"}),
}
"""Lever -> the columns and facts of rules that it can move. A lever that is absent may move anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forbidden:
    """One rule of such a set."""

    backend: Backend
    rule: str
    text: str
    """Both sides of the rule where the request fixes them, and the reason."""
    source: str
    open_names: frozenset[str]
    """Columns and facts of the rule that the request's wishes do not fix."""


def forbidding(problem: Problem) -> tuple[Forbidden, ...]:
    """The rules that leave no row of any back end; empty where a row is legal, or there was none to begin with."""
    problem = with_parts(problem)
    at = spaces(problem)
    if any(space.legal.any() for space in at):
        return ()
    return tuple(found for space in at for found in _of(problem, space))


def _of(problem: Problem, space: BackendSpace) -> Iterator[Forbidden]:
    fixed = {r.key: r.allowed[0] for r in problem.requirements if r.allowed is not None and len(r.allowed) == 1}
    wished = frozenset(r.key for r in problem.requirements if r.allowed is not None)
    for rule in _minimal(problem, space):
        yield Forbidden(
            backend=space.backend,
            rule=rule.id,
            text=_text(rule, problem, fixed),
            source=rule.source,
            open_names=rule.require.names - wished,
        )


def _minimal(problem: Problem, space: BackendSpace) -> list[Rule]:
    """The rules that are kept by deletion; those that hold for every back end are dropped first."""
    counted = {dropped.rule for dropped in space.dropped}
    every = legality(space.backend).searched
    kept = [rule for rule in every if rule.id in counted]
    if space.raw > MOST_ROWS:
        return kept
    for rule in tuple(kept):
        rest = [other for other in kept if other is not rule]
        left = backend_space(problem, space.backend, rules=tuple(rest))
        if not left.legal.any():
            kept = rest
    return kept


def _text(rule: Rule, problem: Problem, fixed: Mapping[str, Value]) -> str:
    """The message, where every name in it has one value; else the reason alone."""
    facts: dict[str, Any] = {**job_facts(problem.job, problem.pools), **fixed}
    words = {key: str(value).lower() if isinstance(value, bool) else value for key, value in facts.items()}
    try:
        return f"{rule.message.format(**words)}: {rule.reason}"
    except KeyError:
        return rule.reason


def may_help(lever: str, forbidden: tuple[Forbidden, ...]) -> bool:
    """Whether a lever moves anything that one of the forbidding rules reads; true where no rule stands in the way."""
    return not forbidden or lever not in MOVES or any(MOVES[lever] & rule.open_names for rule in forbidden)
