"""Certify an answer: its proof made from the question and the answer alone, and written as a certificate holds it."""

import base64
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from cost_models.calibration import Calibration
from cost_models.errors import BrokenRule
from cost_models.specs.configuration import Configuration
from planner.certificate import (
    Certificate,
    Certified,
    CertifiedArrangement,
    CertifiedLedger,
    CertifiedModel,
    CertifiedQuestion,
    CertifiedRegion,
    ClaimedValue,
    Grid,
    Identity,
    RowSet,
    SpaceDefinition,
    resolved_of,
)
from planner.identity import calibration_hash, catalogue_hash, legality_hash
from planner.plan import Plan
from planner.question import Question
from planner.version import __version__

if TYPE_CHECKING:
    from solver.audit.answered import Answered, Model, Rows
    from solver.audit.proof import Proof
    from solver.problem import Problem

MARGIN: Final = Fraction(1, 10**12)
"""A stated bound is a rounded number: what is proven is this much below it, relatively."""


def identity_of(question: Question, calibration: Calibration) -> Identity:
    """What an answer made here and now is made from."""
    from importlib.metadata import version

    return Identity(
        meshwright=__version__,
        ortools=version("ortools"),
        calibration=calibration.version,
        calibration_sha256=calibration_hash(calibration),
        catalogue_sha256=catalogue_hash(),
        legality_sha256=legality_hash(),
        request_hash=resolved_of(question).request_hash(calibration),
    )


def issue(plan: Plan, calibration: Calibration) -> Certificate:
    """The certificate of a plan.

    Raises:
        BrokenRule: the plan proves nothing, was made from something else than what is installed, or is wrong.
    """
    if (plan.optimality is None and plan.infeasibility is None) or plan.request.configuration is not None:
        raise BrokenRule("an estimate prices one configuration and proves nothing: only plans have certificates")
    identity = identity_of(plan.request, calibration)
    if identity.request_hash != plan.provenance.request_hash:
        raise BrokenRule(
            f"the plan answers request {plan.provenance.request_hash[:16]}, its question here and now is "
            f"{identity.request_hash[:16]}: calibration, catalogue or rules differ"
        )
    empty = Certificate(
        identity=identity,
        request=plan.request,
        status=plan.status,
        configuration=plan.configuration,
        proof=_EMPTY,
    )
    asked = empty.problem(calibration)
    problem = over(asked, _counts(plan, asked))
    proof, found = certified(problem, plan.configuration, _bounds(plan, problem))
    if found:
        raise BrokenRule(f"the plan is not what it claims: {found[0]}")
    return empty.model_copy(update={"proof": proof}).sealed()


def over(problem: "Problem", counts: Sequence[int]) -> "Problem":
    """The question over so many devices, where a part of the cluster may do and nobody asked for one."""
    from solver.part import whole_by_default

    if not whole_by_default(problem):
        return problem
    return replace(problem, domains=problem.domains.with_values(gpus=counts))


def _counts(plan: Plan, problem: "Problem") -> tuple[int, ...]:
    """The numbers of devices that a plan looked at."""
    from solver.part import better_divided

    if plan.optimality is None:
        return (*better_divided(problem), problem.job.cluster.gpus)
    return tuple(plan.optimality.certificate["gpus_considered"])


def _bounds(plan: Plan, problem: "Problem") -> tuple[Fraction, ...] | None:
    from solver.audit.pools import arranged
    from solver.objectives import objectives

    if plan.optimality is None or (plan.status == "optimal" and not plan.request.objective_tolerance):
        return None
    stated = plan.optimality.certificate["objectives"]
    part = None if plan.configuration is None else arranged(problem, plan.configuration)
    if part is None:
        raise BrokenRule("the plan is not what it claims: its stages use the pools as no arrangement on offer does")
    chain = objectives(part)
    return tuple(
        Fraction(entry["bound"] / goal.scale) * (1 - MARGIN) for goal, entry in zip(chain, stated, strict=True)
    )


def certified(
    problem: "Problem", configuration: Configuration | None, bounds: tuple[Fraction, ...] | None
) -> tuple[Certified, tuple[str, ...]]:
    """The proof of an answer as a certificate holds it, and what contradicts the answer."""
    from solver.audit.arranged import prove_pools
    from solver.audit.grid import TICK, UNIT
    from solver.audit.proof import prove, rounding_units

    several = len(problem.job.cluster.pools) > 1
    proof = (prove_pools if several else prove)(problem, configuration, bounds)
    grid = Grid(
        tick_seconds=TICK,
        unit_bytes=UNIT,
        rounding_seconds=proof.rounding_seconds,
        rounding_bytes=UNIT * rounding_units(problem),
    )
    return _written(problem, configuration, proof, grid), proof.contradictions


def _written(problem: "Problem", configuration: Configuration | None, proof: "Proof", grid: Grid) -> Certified:
    from solver.audit.arguments import ARGUMENTS

    best = proof.best
    return Certified(
        grid=grid,
        values=tuple(
            ClaimedValue(
                name=v.name, unit=v.unit, exact=str(v.exact), bound=str(v.bound), value=float(v.exact) * v.scale
            )
            for v in proof.values
        ),
        place=None if best is None else {"backend": best.backend, "row": best.row, "simplicity": best.simplicity},
        ledger=None if configuration is None else ledger_of(problem, configuration),
        space=_space(problem, proof),
        argument_names=ARGUMENTS,
        pruned_by=_questions(proof.answers),
        models=_models(proof.models),
        arrangements=tuple(
            CertifiedArrangement(
                pools=one.parts,
                floor_seconds=one.floor_seconds,
                ruled_out=one.ruled_out,
                row_sets=_row_sets(one.spaces),
                pruned_by=_questions(one.answers),
                models=_models(one.models),
            )
            for one in proof.arrangements
        ),
    )


def _questions(answers: Iterable["Answered"]) -> tuple[CertifiedQuestion, ...]:
    return tuple(
        CertifiedQuestion(
            question=answer.question,
            regions=tuple(
                CertifiedRegion(
                    backend=r.backend,
                    argument=r.argument,
                    rows=r.rows,
                    least_step_seconds=r.least_step_seconds,
                    least_excess_bytes=r.least_excess_bytes,
                )
                for r in answer.regions
            ),
            arguments=base64.b64encode(answer.arguments).decode(),
        )
        for answer in answers
    )


def _models(models: Iterable["Model"]) -> tuple[CertifiedModel, ...]:
    return tuple(
        CertifiedModel(
            purpose=m.purpose,
            backend=m.backend,
            row=m.row,
            optimum=m.optimum,
            protobuf=base64.b64encode(zlib.compress(m.text, 9)).decode(),
        )
        for m in models
    )


def _row_sets(spaces: Iterable["Rows"]) -> tuple[RowSet, ...]:
    return tuple(RowSet(backend=s.backend, rows=s.rows, sha256=s.sha256) for s in spaces)


def _space(problem: "Problem", proof: "Proof") -> SpaceDefinition:
    domains: dict[str, Any] = dict(sorted(problem.resolved_domains.values.items()))
    if proof.arrangements:
        domains["gpus"] = sorted({sum(count for _, count in one.parts) for one in proof.arrangements})
    return SpaceDefinition(
        domains={key: None if values is None else tuple(values) for key, values in domains.items()},
        wishes=tuple(wish.text for wish in problem.requirements),
        row_sets=_row_sets(proof.spaces),
    )


def ledger_of(problem: "Problem", configuration: Configuration) -> CertifiedLedger:
    """The ledger of a configuration, summed up."""
    from cost_models.ledger import estimate

    ledger = estimate(problem.job, configuration, problem.calibration, oom_risk=problem.oom_risk)
    memory = ledger.memory
    return CertifiedLedger(
        step_seconds=ledger.time.step_seconds,
        allocated_bytes=tuple(
            {instant: stage.allocated(instant) for instant in stage.instants} for stage in memory.stages
        ),
        conservative_bytes=memory.conservative_bytes,
        usable_bytes=memory.usable_bytes,
        host_node_bytes=memory.host_node_bytes,
        host_usable_bytes=memory.host_usable_bytes,
    )


_EMPTY = Certified(
    grid=Grid(tick_seconds=0.0, unit_bytes=0, rounding_seconds=0.0, rounding_bytes=0),
    values=(),
    place=None,
    ledger=None,
    space=SpaceDefinition(domains={}, wishes=(), row_sets=()),
    argument_names=(),
    pruned_by=(),
    models=(),
)
