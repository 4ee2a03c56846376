"""Certificates: what a sceptic needs to check an answer, in one file; `planner.verifying` checks it.

docs/what-is-proven.md says what is claimed and how each part is checked.
"""

import base64
import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from cost_models.calibration import Calibration
from cost_models.errors import BrokenRule
from cost_models.specs.base import Spec
from cost_models.specs.configuration import Configuration
from planner.identity import calibration_hash, canonical_json, catalogue_hash, legality_hash
from planner.plan import Plan, Status
from planner.question import Question
from planner.resolve import ResolvedRequest
from planner.version import __version__

if TYPE_CHECKING:
    from solver.audit.proof import Proof
    from solver.problem import Problem

FORMAT: Final = "meshwright-certificate-1"
MAX_BYTES: Final = 64 * 2**20
MARGIN: Final = Fraction(1, 10**12)
"""A stated bound is a rounded number: what is proven is this much below it, relatively."""


class Identity(Spec):
    """What the answer was made from. Another release may know other rules and other prices."""

    meshwright: str
    ortools: str
    calibration: str
    calibration_sha256: str
    catalogue_sha256: str
    legality_sha256: str
    request_hash: str


class Grid(Spec):
    """The grid on which values are exact, and how far it is from the unrounded model."""

    tick_seconds: float
    unit_bytes: int
    rounding_seconds: float
    """Most by which the step of any legal configuration is longer on the grid."""
    rounding_bytes: int
    """Most by which the need of any stage at any instant is larger on the grid."""


class ClaimedValue(Spec):
    """One objective: `exact` on the grid and `bound`, below which nothing is, as fractions; `value` in its unit."""

    name: str
    unit: str
    exact: str
    bound: str
    value: float


class CertifiedLedger(Spec):
    """The claimed configuration by the unrounded formulas."""

    step_seconds: float
    allocated_bytes: tuple[dict[str, float], ...]
    """Of each stage at each instant."""
    conservative_bytes: float
    usable_bytes: float
    host_node_bytes: float
    host_usable_bytes: float


class RowSet(Spec):
    """The legal rows of one back end: how many, and a hash of their columns in order."""

    backend: str
    rows: int
    sha256: str


class SpaceDefinition(Spec):
    """What was on offer. None: every divisor that the topology allows."""

    domains: dict[str, tuple[int | bool | str, ...] | None]
    wishes: tuple[str, ...]
    row_sets: tuple[RowSet, ...]


class CertifiedRegion(Spec):
    """Rows of a back end that one argument discards, with the least of its bounds."""

    backend: str
    argument: str
    rows: int
    least_step_seconds: float | None
    least_excess_bytes: float | None


class CertifiedQuestion(Spec):
    """What must have no answer, and why each row has none."""

    question: str
    regions: tuple[CertifiedRegion, ...]
    arguments: str
    """One byte per row, the index in `argument_names`; zlib, base64."""


class CertifiedModel(Spec):
    """The CP-SAT model of a row, its protobuf in text format; zlib, base64. It has this minimum, or no solution."""

    purpose: str
    backend: str
    row: int
    optimum: int | None
    protobuf: str

    @property
    def text(self) -> bytes:
        """Of the protobuf; a model that does not end within the size of a certificate is cut, and then unreadable."""
        return zlib.decompressobj().decompress(base64.b64decode(self.protobuf, validate=True), MAX_BYTES)


class Certified(Spec):
    """All that is proven; an equal question and answer give an equal one, byte for byte."""

    grid: Grid
    values: tuple[ClaimedValue, ...]
    place: dict[str, int] | None
    """Of the claimed row in the order of ties."""
    ledger: CertifiedLedger | None
    space: SpaceDefinition
    argument_names: tuple[str, ...]
    pruned_by: tuple[CertifiedQuestion, ...]
    models: tuple[CertifiedModel, ...]


class Certificate(Spec):
    """An answer with its proof."""

    format: Literal["meshwright-certificate-1"] = FORMAT
    identity: Identity
    request: Question
    status: Status
    configuration: Configuration | None
    proof: Certified
    content_sha256: str = ""

    def content_hash(self) -> str:
        """SHA-256 of all else, as canonical JSON."""
        return hashlib.sha256(canonical_json(self.model_dump(mode="json", exclude={"content_sha256"}))).hexdigest()

    def sealed(self) -> Self:
        """With the hash of its content."""
        return self.model_copy(update={"content_sha256": self.content_hash()})

    def to_json(self) -> str:
        """Two-space JSON."""
        return self.model_dump_json(indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """A certificate from its JSON.

        Raises:
            SpecError: it is none.
        """
        from planner.reading import read_json

        return cls.read(read_json(text, "the certificate", limit=MAX_BYTES))

    def problem(self, calibration: Calibration) -> "Problem":
        """The question in the solver's words."""
        from planner.problem import problem_of

        return problem_of(resolved_of(self.request), calibration)

    @property
    def bounds(self) -> tuple[Fraction, ...] | None:
        """Of the objectives, where the values themselves are not claimed to be best."""
        values = self.proof.values
        if self.status == "optimal" and not self.request.objective_tolerance:
            return None
        return tuple(Fraction(value.bound) for value in values) if values else None


def resolved_of(question: Question) -> ResolvedRequest:
    """A question as a resolved request: nothing in it is left to assume."""
    return ResolvedRequest(**{name: getattr(question, name) for name in Question.model_fields}, assumptions=())


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
    if len(plan.request.cluster.pools) > 1:
        raise BrokenRule(f"a certificate is for one pool, cluster.pools lists {len(plan.request.cluster.pools)}")
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
    from solver.objectives import objectives

    if plan.optimality is None or (plan.status == "optimal" and not plan.request.objective_tolerance):
        return None
    stated = plan.optimality.certificate["objectives"]
    chain = objectives(problem)
    return tuple(
        Fraction(entry["bound"] / goal.scale) * (1 - MARGIN) for goal, entry in zip(chain, stated, strict=True)
    )


def certified(
    problem: "Problem", configuration: Configuration | None, bounds: tuple[Fraction, ...] | None
) -> tuple[Certified, tuple[str, ...]]:
    """The proof of an answer as a certificate holds it, and what contradicts the answer."""
    from solver.audit.grid import TICK, UNIT
    from solver.audit.proof import prove, rounding_units

    proof = prove(problem, configuration, bounds)
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
        pruned_by=tuple(
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
            for answer in proof.answers
        ),
        models=tuple(
            CertifiedModel(
                purpose=m.purpose,
                backend=m.backend,
                row=m.row,
                optimum=m.optimum,
                protobuf=base64.b64encode(zlib.compress(m.text, 9)).decode(),
            )
            for m in proof.models
        ),
    )


def _space(problem: "Problem", proof: "Proof") -> SpaceDefinition:
    domains: dict[str, Any] = dict(sorted(problem.resolved_domains.values.items()))
    return SpaceDefinition(
        domains={key: None if values is None else tuple(values) for key, values in domains.items()},
        wishes=tuple(wish.text for wish in problem.requirements),
        row_sets=tuple(RowSet(backend=s.backend, rows=s.rows, sha256=s.sha256) for s in proof.spaces),
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
