"""What the executor refuses, and what goes wrong while a plan runs.

MeshwrightError                     cost_models
└─ ExecutorError                    anything the executor raises on purpose
   ├─ PlanRefused                   this plan cannot be run here; the message names both sides
   │  └─ PlanInfeasible             the plan says that nothing fits
   ├─ MissingExtra                  a package of the extra `[executor]` is not installed
   ├─ ProbeFailed                   the node could not be measured
   ├─ ServiceAway                   the service did not answer; what was sent is kept
   ├─ ServiceRefused                the service answered with an error
   ├─ LossNotFinite                 a training under guard has a loss that is no number
   ├─ ThroughputCollapsed           its steps take far longer than they did
   └─ RunFailed                     the launched processes ended badly

Each message is one line.
"""

from cost_models.errors import MeshwrightError


class ExecutorError(MeshwrightError):
    """Base of the executor's errors."""


class PlanRefused(ExecutorError):
    """The plan cannot be run as asked; the message names both sides."""


class PlanInfeasible(PlanRefused):
    """The plan's status is infeasible: there is no configuration to run."""


class MissingExtra(ExecutorError):
    """A package needed on training nodes is not installed."""

    def __init__(self, package: str) -> None:
        """Name the `package` and the way to get it."""
        super().__init__(f"{package} is not installed; training needs the extra: pip install 'meshwright[executor]'")


class RunFailed(ExecutorError):
    """The launched processes ended with an error or were stopped."""


class LossNotFinite(ExecutorError):
    """A training under guard has a loss that is no number."""


class ThroughputCollapsed(ExecutorError):
    """The steps of a training under guard take far longer than they did."""


class ProbeFailed(ExecutorError):
    """The node could not be measured."""


class ServiceAway(ExecutorError):
    """The service cannot be reached or is overloaded: worth another try later."""


class ServiceRefused(ExecutorError):
    """The service answered that the request is wrong: another try would end the same."""
