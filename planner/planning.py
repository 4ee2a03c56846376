"""The front door: a request becomes a plan, or an estimate. Reproducible outside the envelope."""

import platform
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cost_models.calibration import Calibration
from cost_models.errors import BrokenRule, MissingKey, SpecError
from cost_models.specs.configuration import Configuration
from planner import calibrations
from planner.explain import binding, explain, runners_up
from planner.identity import calibration_hash, catalogue_hash, legality_hash
from planner.infeasible import explain_infeasible, memory_conflicts
from planner.legality import violations
from planner.plan import (
    Alternative,
    Assumption,
    Envelope,
    Infeasibility,
    KnowledgeClass,
    Optimality,
    Plan,
    Prediction,
    Provenance,
)
from planner.prediction import predict, rounded
from planner.recommendations import recommend
from planner.request import PlanRequest
from planner.resolve import ResolvedRequest, resolve
from planner.scenarios import with_scenarios
from planner.uncertainty import knowledge_class, within_noise
from planner.version import __version__
from planner.warn import warnings_of

if TYPE_CHECKING:
    from solver.solution import Solution

Report = Callable[[str], None]
"""Takes one line about every stage of the work and every better value found."""
Progress = Callable[[str, float], None]
"""Takes every better value found, under its objective's name, and what is proven so far, under the name and ` bound`.

A line about the same follows.
"""


def plan(
    request: PlanRequest,
    calibration: Calibration | None = None,
    *,
    report: Report | None = None,
    progress: Progress | None = None,
) -> Plan:
    """The best configuration for a request, with its proof; or why there is none.

    Raises:
        SpecError: the request names something unknown or contradicts itself.
        MissingCalibration: a cost term has no constant for this device or framework.
        SolverError: the solver's budget ran out, or its answer failed verification.
    """
    return answered(Asked.of(request, calibration), report=report, progress=progress)


def answered(question: "Asked", *, report: Report | None = None, progress: Progress | None = None) -> Plan:
    """The same for a request that is resolved already."""
    from planner.problem import problem_of
    from solver.rivals import rivals
    from solver.search import solve

    started = time.perf_counter()
    problem = problem_of(question.resolved, question.calibration)
    solution = solve(problem, progress=_told(report, progress))
    if solution.configuration is not None:
        solution = replace(solution, alternatives=rivals(problem, solution))
    if solution.configuration is None:
        answer = explain_infeasible(question.resolved, question.calibration, problem, report)
    else:
        answer = _chosen(question, solution, solution.configuration)
    return question.finish(answer, solution.configuration, ortools=solution.ortools, started=started)


def estimate(request: PlanRequest, calibration: Calibration | None = None) -> Plan:
    """Price exactly the configuration of the request: a plan without a choice and without a proof.

    Its status is `feasible` when it fits at the asked risk, else `infeasible`; the verdict tells how far off it is.

    Raises:
        SpecError: no configuration is given, a name is unknown, two numbers contradict each other.
        BrokenRule: the back end cannot run this configuration; the message gives the rule.
        MissingCalibration: a cost term has no constant for this device or framework.
    """
    started = time.perf_counter()
    question = Asked.of(request, calibration)
    resolved = question.resolved
    configuration = resolved.configuration
    if configuration is None:
        raise MissingKey("configuration", "request", "an estimate prices exactly one").at("configuration")
    broken = violations(resolved.job, configuration)
    if broken:
        raise _all_broken(broken)
    predicted = predict(resolved.job, configuration, question.calibration, oom_risk=resolved.constraints.oom_risk)
    fits = predicted.memory.verdict == "fits"
    answer: dict[str, Any] = {
        "status": "feasible" if fits else "infeasible",
        "infeasibility": None if fits else Infeasibility(conflict=memory_conflicts(predicted.memory)),
        "configuration": configuration,
        "prediction": predicted,
        "optimality": None,
        "assumptions": with_scenarios(
            resolved.assumptions + _own_dropout(resolved, configuration),
            resolved.job,
            configuration,
            question.calibration,
            oom_risk=resolved.constraints.oom_risk,
        ),
        "explanation": (binding(predicted),),
        "warnings": warnings_of(resolved, configuration, predicted, question.calibration),
        "recommendations": recommend(resolved.job, configuration),
    }
    return question.finish(answer, configuration, ortools="none", started=started)


def _all_broken(rules: Sequence[str]) -> SpecError:
    """The configuration breaks rules of its back end: the first is said, and each has a place."""
    error = BrokenRule(f"configuration: {rules[0]}" + (f" (and {len(rules) - 1} more)" if rules[1:] else ""))
    error.places = tuple((("configuration",), rule) for rule in rules)
    return error


def _told(report: Report | None, progress: Progress | None) -> Progress | None:
    """The solver's progress, as lines and as numbers."""
    if report is None and progress is None:
        return None

    def tell(stage: str, value: float) -> None:
        if progress is not None:
            progress(stage, value)
        if report is not None:
            report(f"{stage} {value:.6g}")

    return tell


@dataclass(frozen=True, slots=True)
class Asked:
    """A resolved request with the calibration that answers it."""

    resolved: ResolvedRequest
    calibration: Calibration

    @classmethod
    def of(cls, request: PlanRequest, calibration: Calibration | None) -> "Asked":
        """The request resolved, with the current calibration unless one is given."""
        return cls(resolve(request), calibration if calibration is not None else calibrations.current())

    def finish(
        self, answer: dict[str, Any], configuration: Configuration | None, *, ortools: str, started: float
    ) -> Plan:
        """The plan with what it was made from, in the envelope of where and when."""
        return Plan(
            **answer,
            request=self.resolved.question,
            provenance=self.provenance(configuration or _nearest(answer), ortools),
            envelope=envelope(started),
        ).sealed()

    def provenance(self, priced: Configuration | None, ortools: str) -> Provenance:
        """What an answer about a configuration is made from."""
        known: KnowledgeClass = "unseen"
        if priced is not None:
            known = knowledge_class(self.resolved.job, priced, self.calibration)
        return Provenance(
            meshwright=__version__,
            calibration=f"{self.calibration.version}#{calibration_hash(self.calibration)[:16]}",
            catalogue=catalogue_hash(),
            legality=legality_hash(),
            ortools=ortools,
            request_hash=self.resolved.request_hash(self.calibration),
            class_=known,
        )


def envelope(started: float) -> Envelope:
    """Where and when, for work that began at `started` on the performance counter."""
    return Envelope(
        id=str(uuid.uuid4()),
        created_at=datetime.now(UTC),
        solve_seconds=time.perf_counter() - started,
        host=platform.node(),
    )


def _nearest(answer: dict[str, Any]) -> Configuration | None:
    """The configuration of the nearest miss of an infeasible answer."""
    infeasibility: Infeasibility | None = answer.get("infeasibility")
    miss = infeasibility.nearest_miss if infeasibility is not None else None
    return None if miss is None else miss.configuration


def plan_of(question: Asked, solution: "Solution", started: float) -> Plan:
    """A solution of a question that has one, as a plan."""
    assert solution.configuration is not None
    answer = _chosen(question, solution, solution.configuration)
    return question.finish(answer, solution.configuration, ortools=solution.ortools, started=started)


def _chosen(question: Asked, solution: "Solution", configuration: Configuration) -> dict[str, Any]:
    resolved, calibration = question.resolved, question.calibration
    job, risk = resolved.job, resolved.constraints.oom_risk
    predicted = predict(job, configuration, calibration, oom_risk=risk)
    return {
        "status": solution.status,
        "configuration": configuration,
        "prediction": predicted,
        "optimality": _optimality(solution),
        "assumptions": resolved.assumptions + _defaults_taken(resolved, configuration),
        "explanation": (
            *explain(job, configuration, predicted, calibration, oom_risk=risk),
            *runners_up((a.configuration, a.why) for a in solution.alternatives),
        ),
        "warnings": (*solution.notes, *warnings_of(resolved, configuration, predicted, calibration)),
        "alternatives": _alternatives(question, solution, configuration),
        "recommendations": recommend(job, configuration),
    }


def _optimality(solution: "Solution") -> Optimality:
    first = solution.objectives[0]
    return Optimality(
        objective=tuple(objective.name for objective in solution.objectives),
        value=first.value,
        bound=first.bound,
        gap=first.gap,
        proven=all(objective.proven for objective in solution.objectives),
        candidates=asdict(solution.candidates),
        certificate={
            "unit": first.unit,
            "objectives": [asdict(objective) | {"gap": objective.gap} for objective in solution.objectives],
            "dropped": [asdict(rule) for rule in solution.dropped],
            "gpus_considered": list(solution.gpus_considered),
            "rounding_seconds": solution.rounding_seconds,
            "solver_parameters": solution.parameters,
        },
    )


def _defaults_taken(resolved: ResolvedRequest, configuration: Configuration) -> tuple[Assumption, ...]:
    """What the chosen back end decided because the request left it open."""
    found = []
    if resolved.training.attention == "auto":
        found.append(Assumption(key="training.attention", value=configuration.attention, from_=_release(configuration)))
    return (*found, *_own_dropout(resolved, configuration), *_unless_asked(resolved), *_power(resolved))


def _unless_asked(resolved: ResolvedRequest) -> tuple[Assumption, ...]:
    """The values that are not searched beyond, where the request says nothing of them."""
    from solver.domains import UNLESS_ASKED

    left = {key: value for key, value in UNLESS_ASKED.items() if key not in resolved.constraints.domains()}
    told = ", ".join(f"{key} {str(value).lower()}" for key, value in left.items())
    return (Assumption(key="constraints", value=told, from_="searched only if asked"),) if left else ()


def _power(resolved: ResolvedRequest) -> tuple[Assumption, ...]:
    """What an energy is an estimate of, where the request asks for it."""
    if "energy" not in resolved.objective and resolved.constraints.max_energy_per_step is None:
        return ()
    devices = {pool.device.name: pool.device for pool in resolved.cluster.pools}
    return tuple(
        Assumption(
            key="energy",
            value=f"an estimate: every GPU draws its TDP of {device.tdp_watts:g} W for the whole step, busy or "
            "waiting; hosts, network and cooling are left out",
            from_=f"device {name}",
        )
        for name, device in devices.items()
    )


def _own_dropout(resolved: ResolvedRequest, configuration: Configuration) -> tuple[Assumption, ...]:
    """The back end's own dropout, where the request states none: masks are memory.

    Source of 0.1: Megatron-LM `megatron/training/arguments.py`, --hidden-dropout and --attention-dropout.
    """
    from cost_models import catalog

    if resolved.training.dropout is not None:
        return ()
    value = 0.1 if catalog.framework(configuration.backend.name).dropout else 0.0
    return (Assumption(key="training.dropout", value=value, from_=_release(configuration)),)


def _release(configuration: Configuration) -> str:
    return f"{configuration.backend.name}@{configuration.backend.release_range}"


def _alternatives(question: Asked, solution: "Solution", configuration: Configuration) -> tuple[Alternative, ...]:
    resolved, calibration = question.resolved, question.calibration
    found = []
    for rival in solution.alternatives:
        predicted: Prediction = predict(
            resolved.job, rival.configuration, calibration, oom_risk=resolved.constraints.oom_risk, replay=False
        )
        found.append(
            Alternative(
                configuration=rival.configuration,
                value=rounded(rival.value),
                step_seconds=predicted.time.step_seconds,
                conservative_bytes=predicted.memory.conservative_bytes,
                world_size=rival.configuration.world_size,
                within_noise=within_noise(rival.loss, calibration),
            )
        )
    return tuple(found)
