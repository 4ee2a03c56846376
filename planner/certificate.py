"""Certificates: what a sceptic needs to check an answer, in one file. Made by `certifying`, checked by `verifying`.

docs/what-is-proven.md says what is claimed and how each part is checked.
"""

import base64
import hashlib
import re
import zlib
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Final, Literal, Self

from cost_models.calibration import Calibration
from cost_models.errors import BrokenRule
from cost_models.specs.base import Spec
from cost_models.specs.configuration import Configuration
from planner.identity import canonical_json
from planner.plan import Status
from planner.question import Question
from planner.resolve import ResolvedRequest

if TYPE_CHECKING:
    from solver.problem import Problem

FORMAT: Final = "meshwright-certificate-1"
MAX_BYTES: Final = 64 * 2**20
_FRACTION: Final = re.compile(r"\d{1,60}(/[1-9]\d{0,60})?", re.ASCII)


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


class CertifiedArrangement(Spec):
    """One way to use several pools, and why nothing in it contradicts the claim."""

    pools: tuple[tuple[int, int], ...]
    """Pool and devices, along the pipeline."""
    floor_seconds: float
    """Time of one sequence at the least, all devices computing all along."""
    ruled_out: tuple[str, ...]
    """Questions that the floor or the number of devices answers alone."""
    row_sets: tuple[RowSet, ...]
    pruned_by: tuple[CertifiedQuestion, ...]
    """The other questions."""
    models: tuple[CertifiedModel, ...]


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
    arrangements: tuple[CertifiedArrangement, ...] = ()
    """Of several pools; empty where there is one."""

    @property
    def every_model(self) -> tuple[CertifiedModel, ...]:
        """With those of the arrangements."""
        return (*self.models, *(model for one in self.arrangements for model in one.models))


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
        """The question in the solver's words; what the budget left unproven claims no tolerance."""
        from planner.problem import problem_of

        asked = problem_of(resolved_of(self.request), calibration)
        return replace(asked, objective_tolerance=0.0) if self.status == "feasible" else asked

    @property
    def bounds(self) -> tuple[Fraction, ...] | None:
        """Of the objectives, where the values themselves are not claimed to be best."""
        values = self.proof.values
        if self.status == "optimal" and not self.request.objective_tolerance:
            return None
        return tuple(fraction(value.bound) for value in values) if values else None


def fraction(text: str) -> Fraction:
    """An exact value as certificates write it.

    Raises:
        BrokenRule: it is written otherwise, or is longer than any value.
    """
    if not _FRACTION.fullmatch(text):
        raise BrokenRule(f"{text[:60]!r} is no fraction of whole numbers")
    return Fraction(text)


def resolved_of(question: Question) -> ResolvedRequest:
    """A question as a resolved request: nothing in it is left to assume."""
    return ResolvedRequest(**{name: getattr(question, name) for name in Question.model_fields}, assumptions=())
