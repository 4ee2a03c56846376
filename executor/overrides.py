"""A plan that a person changed: it may be run, as what it now is, and is never taken for the one that was planned."""

from typing import Final

from executor.errors import PlanInfeasible, PlanRefused
from planner.plan import Plan

EDITED: Final = (
    "the plan was changed after it was made: it is run as it now reads, beside a prediction made now for exactly that, "
    "and nothing proves that it is the best; its measurement is not reported as the plan's"
)

UNKNOWN: Final = "the plan records no hash of its content: whether it was changed after it was made cannot be told"


def as_it_reads(plan: Plan) -> tuple[Plan, tuple[str, ...]]:
    """The plan with a prediction of the configuration that it holds, and what is to be said of it.

    Raises:
        PlanInfeasible: it has no configuration.
        PlanRefused: its parts contradict each other.
        BrokenRule: its configuration contradicts its request, or breaks a rule of its back end.
    """
    c = plan.configuration
    if c is None:
        raise PlanInfeasible(f"the plan's status is {plan.status}: there is nothing to run{reasons(plan)}")
    if plan.status == "infeasible":
        raise PlanRefused(
            f"the plan {plan.envelope.id} contradicts itself: its status is infeasible, and it holds a configuration "
            f"for {c.world_size} processes"
        )
    if plan.envelope.content_sha256 is not None and not plan.edited:
        return plan, ()
    from planner.edited import check_edited

    check_edited(plan)
    if not plan.edited:
        return plan, (UNKNOWN,)
    from planner import calibrations
    from planner.prediction import predict

    risk = plan.request.constraints.oom_risk
    foretold = predict(plan.request.job, c, calibrations.current(), oom_risk=risk)
    return plan.model_copy(update={"prediction": foretold}), (EDITED,)


def reasons(plan: Plan) -> str:
    """What a plan without a configuration says of why, in parentheses."""
    conflict = plan.infeasibility.conflict if plan.infeasibility else ()
    return f" ({'; '.join(part.text for part in conflict)})" if conflict else ""
