"""What can be told of a request before it is queued, so that nothing is accepted that is bound to be refused."""

from collections.abc import Mapping
from typing import Any

from cost_models.calibration import Calibration
from planner import fronts
from planner.problem import problem_of
from planner.request import PlanRequest
from planner.resolve import resolve
from service.solving.worker import Verb, axes_of


def check(verb: Verb, request: PlanRequest, options: Mapping[str, Any], calibration: Calibration) -> None:
    """Refuse what a worker would refuse. What is answered at once is not looked at twice; a calibration asks no job.

    Raises:
        SpecError: the request contradicts itself, or has no such answer.
    """
    match verb:
        case "plan":
            problem_of(resolve(request), calibration)
        case "ladder":
            fronts.ladder_problem(request, options["low"], options["high"], calibration)
        case "frontier":
            fronts.front_problem(request, axes_of(options), options["points"], calibration)
        case "estimate" | "calibration":
            pass
