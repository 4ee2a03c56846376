"""The proof of an answer over several pools: the claim in its own arrangement, every arrangement against the claim.

An arrangement is ruled out by its floor or its number of devices, or its rows are discarded one by one, as those of one
pool are.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

from cost_models.specs.choices import BACKENDS
from cost_models.specs.configuration import Configuration
from solver.arrangement import Arrangement
from solver.audit.answered import LAST_ROWS, Answered, Model, Rows, answered, nearest, rows_of, settle
from solver.audit.arguments import claimed_row, discard
from solver.audit.claim import Question, questions
from solver.audit.grid import TICK
from solver.audit.pools import arranged, arrangements, device_seconds, floor_ticks
from solver.audit.proof import (
    ArrangementProof,
    Proof,
    Value,
    claimed_models,
    exact_values,
    parts,
    place,
    refuted,
    rounding_of,
)
from solver.audit.space import Spaces, every_space
from solver.caps import caps
from solver.objectives import Objective, objectives
from solver.problem import Problem

SLACK = Fraction(1, 10**9)
"""By which a floor must exceed a limit, relatively: floors are floats."""


def prove_pools(
    problem: Problem, configuration: Configuration | None, bounds: tuple[Fraction, ...] | None = None
) -> Proof:
    """The proof that a configuration is best over all arrangements, that nothing undercuts `bounds`, or of none."""
    offered = arrangements(problem)
    if configuration is None:
        return _over(problem, offered, _nothing())
    part = arranged(problem, configuration)
    if part is None or part.arrangement is None:
        return refuted("the stages use the pools as no arrangement on offer does")
    spaces = every_space(part)
    best = place(configuration, spaces)
    if best is None:
        return refuted(f"{configuration.backend.name}: the configuration is no legal row of its arrangement")
    best, layout = replace(best, turn=part.arrangement.turn), parts(configuration)
    row, chain = claimed_row(part, BACKENDS[best.backend], best.row, spaces), objectives(part)
    exact = exact_values(chain, row, layout)
    claim = replace(
        _nothing(),
        best=best,
        models=tuple(claimed_models(replace(part, objective_tolerance=0.0), chain, exact, row, layout, bounds)),
        values=tuple(
            Value(name=goal.name, unit=goal.unit, exact=value, bound=bound, scale=goal.scale)
            for goal, value, bound in zip(chain, exact, bounds or exact, strict=True)
        ),
    )
    return _over(problem, offered, claim, bounded=bounds is not None)


def _nothing() -> Proof:
    return replace(refuted(""), contradictions=())


def _over(problem: Problem, offered: Sequence[Arrangement], claim: Proof, *, bounded: bool = False) -> Proof:
    """A claim with every arrangement's proof that nothing contradicts it."""
    seconds = [device_seconds(problem, pool) for pool in range(len(problem.job.cluster.pools))]
    known: dict[tuple[tuple[int, int], ...], Spaces] = {}
    found, contradictions, longest = list[ArrangementProof](), list[str](), 0.0
    for one in offered:
        part = replace(problem, arrangement=one)
        against = _Against(part, one, claim, floor_ticks(one, seconds), bounded)
        use = tuple(sorted(one.parts))
        if use not in known and against.open:
            known = {use: every_space(part)}  # orders of the same devices follow each other
        proof, wrong, ticks = against.proof(known.get(use, {}))
        found.append(proof)
        contradictions += wrong
        longest = max(longest, ticks)
    return replace(
        claim, arrangements=tuple(found), contradictions=tuple(contradictions), rounding_seconds=longest * TICK
    )


class _Against:
    """One arrangement against the claim."""

    def __init__(self, part: Problem, arrangement: Arrangement, claim: Proof, floor: float, bounded: bool) -> None:
        self.part, self.arrangement, self.floor, self.best = part, arrangement, floor, claim.best
        bounds = tuple(value.bound for value in claim.values) if bounded else None
        exact = tuple(value.exact for value in claim.values)
        asked = questions(objectives(part), exact, claim.best, bounds, part.objective_tolerance)
        # A tolerance looks for simpler configurations in the winner's arrangement alone: only bounds are claimed.
        every = [
            replace(one, turn=arrangement.turn)
            for one in asked
            if one.simpler_than is None and one.as_simple_as is None
        ]
        possible = [not self._impossible(one) for one in every]
        self.ruled_out = tuple(one.name for one, open_ in zip(every, possible, strict=True) if not open_)
        self.open = [one for one, open_ in zip(every, possible, strict=True) if open_]

    def _impossible(self, question: Question) -> bool:
        """Whether the floor exceeds what some goal or limit allows, or the devices are too many."""
        limit, batch = caps(self.part), self.part.job.training.batch_range.min
        if limit.step_ticks is not None and self.floor * batch > limit.step_ticks * (1 + SLACK):
            return True
        below = () if question.below is None else (question.below,)
        return any(self._exceeds(goal, value) for goal, value in (*question.within, *below, *limit.timed)) or any(
            goal.name == "gpus" and question.ties is None and self.arrangement.gpus >= value for goal, value in below
        )

    def _exceeds(self, goal: Objective, value: Fraction) -> bool:
        if goal.name == "gpus":
            return self.arrangement.gpus > value
        if goal.goal != "time":
            return False
        rate = goal.rate if goal.rate is not None else self.arrangement.gpus if goal.per_gpu else 1
        sequences = 1 if goal.per_sequence else self.part.job.training.batch_range.min
        return Fraction(self.floor) * sequences * rate > value * (1 + SLACK)

    def proof(self, spaces: Spaces) -> tuple[ArrangementProof, list[str], float]:
        """Why it has no answer, what contradicts that, and the most ticks that rounding adds to a step."""
        mine = self.best is not None and self.best.turn == self.arrangement.turn
        answers, models, wrong, longest = list[Answered](), list[Model](), list[str](), 0.0
        for question in self.open:
            found = list(discard(self.part, question, spaces))
            wrong += [f"pools {self.arrangement.parts}: {text}" for text in settle(question, found)]
            models += nearest(question, found, LAST_ROWS if mine else 0)
            answers.append(answered(question, found))
            longest = max([longest, *(rounding_of(self.part, rows.rows) for rows in found)])
        proof = ArrangementProof(
            parts=self.arrangement.parts,
            floor_seconds=self.floor * TICK,
            ruled_out=self.ruled_out,
            spaces=tuple(self._rows(spaces)) if self.open else (),
            answers=tuple(answers),
            models=tuple(models),
        )
        return proof, wrong, longest

    def _rows(self, spaces: Spaces) -> Iterator[Rows]:
        return (rows_of(backend, rows) for backend, rows in spaces.items())
