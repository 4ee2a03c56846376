"""From a resolved request to the solver's problem."""

from typing import TYPE_CHECKING

from cost_models.calibration import Calibration
from cost_models.errors import MissingKey
from planner.constraints import DECISIONS, OFFLOADS
from planner.domain import Domain, Value
from planner.resolve import ResolvedRequest

if TYPE_CHECKING:
    from solver.domains import Requirement
    from solver.problem import Problem


def problem_of(resolved: ResolvedRequest, calibration: Calibration) -> "Problem":
    """The question in the solver's words.

    Raises:
        MissingKey: an objective or a limit needs a price or a power that a pool lacks.
    """
    from solver.problem import Limits, Problem

    constraints = resolved.constraints
    try:
        return Problem(
            job=resolved.job,
            calibration=calibration,
            objectives=resolved.objective,
            backends=resolved.backends,
            requirements=requirements(resolved),
            limits=Limits(**constraints.limits()),
            oom_risk=constraints.oom_risk,
            objective_tolerance=resolved.objective_tolerance,
        )
    except MissingKey as error:  # of a pool or its device, named as the request names them
        raise error.at(*error.where.split("."), error.key) from None


def requirements(resolved: ResolvedRequest) -> "tuple[Requirement, ...]":
    """Every decision that the request restricts as the solver's requirement, in the user's words."""
    from solver.domains import Requirement

    constraints = resolved.constraints
    found = []
    for name, domain in constraints.stated().items():
        forbidden = constraints.offload == "forbid" and name in OFFLOADS
        found.append(
            Requirement(
                key=name,
                text="offload: forbid" if forbidden else f"{name}: {domain}",
                allowed=_allowed(name, domain),
                forbidden=domain.forbid,
                minimum=domain.min,
                maximum=domain.max,
            )
        )
    return tuple(found)


def _allowed(name: str, domain: Domain) -> tuple[Value, ...] | None:
    """The values named; of yes and no, forbidding one names the other."""
    if domain.values is not None:
        return domain.among(domain.values)
    if domain.forbid and DECISIONS[name].kind == "flag":
        return domain.among((False, True))
    return None
