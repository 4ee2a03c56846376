"""Errors that the planner raises on purpose.

    MeshwrightError                    (cost_models)
    ├─ SpecError
    │  ├─ RequestUnreadable            the request is no YAML or JSON mapping, or is too large or too clever
    │  └─ DatasetUnreadable            a file of measurements is missing, no text, or of another header
    └─ PlannerError
       └─ ExportUnsupported            the target cannot express this plan

Infeasible is a result, not an error.
"""

from cost_models.errors import MeshwrightError, SpecError


class RequestUnreadable(SpecError):
    """The text of a request cannot be read as one plain mapping."""


class DatasetUnreadable(SpecError):
    """A file of measurements cannot be read; the message names the file and, where there is one, line and column."""


class PlannerError(MeshwrightError):
    """No plan and no artifact, for a reason that is not the input's form."""


class ExportUnsupported(PlannerError):
    """The target cannot express this plan; `losses` lists what it cannot say."""

    def __init__(self, target: str, losses: tuple[str, ...]) -> None:
        """Name the `target` and each part of the plan that it would lose."""
        self.target, self.losses = target, losses
        super().__init__(f"{target} cannot express this plan: {'; '.join(losses)}")
