"""Verify a certificate: every part is made again and compared, its claims are checked by independent means."""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cost_models.calibration import Calibration
from cost_models.errors import MeshwrightError
from planner.certificate import Certificate, Certified, CertifiedModel, fraction
from planner.certifying import certified, identity_of, over
from planner.legality import release_range, violations

if TYPE_CHECKING:
    from solver.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was checked, and what was found wrong with it."""

    name: str
    text: str
    faults: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return not self.faults


def verify(text: str, calibration: Calibration) -> tuple[Check, ...]:
    """Every check of a certificate's text, in order; those that would only repeat an earlier fault are left out.

    Raises:
        SpecError: the text is no certificate.
    """
    certificate, checks = Certificate.from_json(text), list[Check]()
    for check in _checks(certificate, text, calibration):
        checks.append(check)
        if not check.passed and check.name in _BASIC:
            break
    return tuple(checks)


_BASIC: Final = frozenset({"integrity", "identity", "devices", "legality"})
"""Checks without which the later ones ask about nothing that exists."""


def _check(name: str, text: str, faults: Iterable[str]) -> Check:
    """A check; what a forged number makes impossible to work out is a fault of it, as any other."""
    try:
        return Check(name=name, text=text, faults=tuple(faults))
    except (MeshwrightError, ArithmeticError, ValueError) as error:
        return Check(name=name, text=text, faults=(f"cannot be checked: {error}",))


def _checks(certificate: Certificate, text: str, calibration: Calibration) -> Iterator[Check]:
    yield _check(
        "integrity",
        "the content has the hash that it states and the text is as it was issued",
        _integrity(certificate, text),
    )
    yield _check(
        "identity",
        "release, calibration, catalogue, rules and request are those installed here",
        _identity(certificate, calibration),
    )
    asked = certificate.problem(calibration)
    yield _check(
        "devices",
        "every number of devices that may be better is among those looked at",
        _devices(certificate, asked),
    )
    problem = over(asked, [int(count) for count in certificate.proof.space.domains.get("gpus") or ()])
    if certificate.configuration is not None:
        yield _check(
            "legality",
            "the configuration obeys the rules of its back end and the constraints of the request",
            _legality(certificate),
        )
        yield _check(
            "feasibility",
            "it fits and meets every limit by the unrounded ledger, whose values are those on the grid",
            _feasibility(certificate, problem),
        )
    again = list[Certified]()
    yield _check(
        "optimality",
        f"no legal row, enumerated and priced anew, {_claim(certificate)}",
        _optimality(certificate, problem, again),
    )
    if not again:
        return
    yield _check(
        "reproduction",
        "grid, values, space, arguments and models are those that this answer has",
        _differences(certificate.proof, again[0]),
    )
    yield _check(
        "models",
        f"CP-SAT finds again what {len(certificate.proof.every_model)} models claim",
        _models(certificate.proof.every_model, again[0].every_model),
    )


def _optimality(certificate: Certificate, problem: "Problem", again: list[Certified]) -> Iterator[str]:
    """What contradicts the claim; the proof, made anew, goes to `again`."""
    if certificate.configuration is not None and not certificate.proof.values:
        yield "no objective is claimed"
        return
    proof, contradictions = certified(problem, certificate.configuration, certificate.bounds)
    again.append(proof)
    yield from contradictions


def _models(stated: Sequence[CertifiedModel], own: Sequence[CertifiedModel]) -> Iterator[str]:
    """Models that CP-SAT does not solve as claimed; one that was not made anew here is not tried."""
    for model in stated:
        if model in own:
            yield from _model(model)
        else:
            yield f"model {model.purpose} of {model.backend} row {model.row} is no model of this answer"


def _claim(certificate: Certificate) -> str:
    if certificate.status == "infeasible":
        return "has a configuration that meets the request"
    if not certificate.proof.values:
        return "has a better configuration"
    first = certificate.proof.values[0]
    weaker = certificate.bounds is not None and len(certificate.request.cluster.pools) > 1
    if certificate.status == "optimal" and not weaker:
        return f"has a better configuration ({first.name} {first.value:.9g} {first.unit})"
    return f"is below the bound ({first.name}, {first.unit})"


def _devices(certificate: Certificate, problem: "Problem") -> Iterator[str]:
    """Where nobody asked for a part of the cluster: the whole, and what the batch divides better and may be faster."""
    from solver.part import better_divided, whole_by_default, worth_asking
    from solver.rows import prices

    stated = set(certificate.proof.space.domains.get("gpus") or ())
    if any(type(count) is not int for count in stated):
        yield f"the numbers of devices are {sorted(map(str, stated))}, which are no numbers"
        return
    if not whole_by_default(problem) or certificate.status == "feasible":
        return
    values = certificate.proof.values
    ticks, gpus = float(fraction(values[0].bound)) if values else None, problem.job.cluster.gpus
    needed, known = {*worth_asking(problem, prices(None), ticks), gpus}, {*better_divided(problem), gpus}
    if not needed <= stated <= known:
        yield f"the numbers of devices are {sorted(stated)}, they should be {sorted(needed)}"


def _integrity(certificate: Certificate, text: str) -> Iterator[str]:
    if text != certificate.to_json():
        yield "the text is not what was issued: keys, numbers or white space are written otherwise"
    if certificate.content_sha256 != certificate.content_hash():
        yield "content_sha256 is not the hash of the content: the certificate was changed after it was issued"


def _identity(certificate: Certificate, calibration: Calibration) -> Iterator[str]:
    here = identity_of(certificate.request, calibration)
    for name in type(here).model_fields:
        stated, own = getattr(certificate.identity, name), getattr(here, name)
        if stated != own:
            yield f"{name} is {stated} in the certificate and {own} here"
    if (certificate.configuration is None) != (certificate.status == "infeasible"):
        yield f"status {certificate.status} and {'no' if certificate.configuration is None else 'a'} configuration"


def _legality(certificate: Certificate) -> Iterator[str]:
    from planner.allowed import outside_domains

    chosen, request = certificate.configuration, certificate.request
    assert chosen is not None, "an infeasible answer has none"
    yield from violations(request.job, chosen)
    same = {
        "backend.release_range": (chosen.backend.release_range, release_range(chosen.backend.name)),
        "optimizer": (chosen.optimizer, request.training.optimizer),
        "lora": (chosen.lora, request.training.adapters),
        "recompute.interval": (len({stage.recompute.interval for stage in chosen.stages}), 1),
    }
    yield from (f"{name} is {stated}, it should be {own}" for name, (stated, own) in same.items() if stated != own)
    if chosen.backend.name not in request.backends:
        yield f"back end {chosen.backend.name} is none of {', '.join(request.backends)}"
    yield from outside_domains(request.constraints, chosen)
    batch = request.training.batch_range
    if not batch.min <= chosen.global_batch_size <= batch.max:
        yield f"global_batch_size {chosen.global_batch_size} is not in {batch.min} to {batch.max}"
    if sum(stage.layers for stage in chosen.stages) != request.model.num_hidden_layers:
        yield f"stages do not hold the {request.model.num_hidden_layers} layers of the model"


def _feasibility(certificate: Certificate, problem: "Problem") -> Iterator[str]:
    from planner.certifying import ledger_of
    from solver.audit.limits import broken

    assert certificate.configuration is not None, "an infeasible answer has none"
    ledger = ledger_of(problem, certificate.configuration)
    if ledger != certificate.proof.ledger:
        yield "the ledger of the configuration is another one"
    if ledger.conservative_bytes > ledger.usable_bytes:
        yield f"{ledger.conservative_bytes:.0f} bytes are needed of {ledger.usable_bytes:.0f} usable"
    if ledger.host_node_bytes > ledger.host_usable_bytes:
        yield f"{ledger.host_node_bytes:.0f} bytes of host memory are needed of {ledger.host_usable_bytes:.0f}"
    yield from broken(problem, certificate.configuration)


def _differences(stated: Any, own: Any, path: str = "proof") -> Iterator[str]:
    """Fields in which two specs differ."""
    if type(stated) is not type(own):
        yield f"{path} is {stated!r:.60}, it should be {own!r:.60}"
    elif hasattr(type(stated), "model_fields"):
        for name in type(stated).model_fields:
            yield from _differences(getattr(stated, name), getattr(own, name), f"{path}.{name}")
    elif isinstance(stated, tuple) and len(stated) == len(own):
        for index, (one, other) in enumerate(zip(stated, own, strict=True)):
            yield from _differences(one, other, f"{path}.{index}")
    elif stated != own:
        yield f"{path} is {stated!r:.60}, it should be {own!r:.60}"


def _model(model: CertifiedModel) -> Iterator[str]:
    from solver.audit.models import solved

    name = f"model {model.purpose} of {model.backend} row {model.row}"
    try:
        status, optimum = solved(model.text)
    except (ValueError, zlib.error) as error:
        yield f"{name}: {error}"
        return
    wanted = ("INFEASIBLE", None) if model.optimum is None else ("OPTIMAL", model.optimum)
    if (status, optimum) != wanted:
        yield f"{name}: CP-SAT says {status} {optimum}, claimed is {wanted[0]} {wanted[1]}"
