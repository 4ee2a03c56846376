"""What the solver raises on purpose.

    MeshwrightError
    └─ SolverError
       ├─ LimitReached           the budget ran out before any configuration was found
       ├─ VerificationFailed     the scalar ledger contradicts the chosen configuration: a bug of ours, never a result
       └─ BadLegality            a back end's rule file cannot be read

Infeasible is a result, not an error: `Solution.status` says so.
"""

from cost_models.errors import MeshwrightError


class SolverError(MeshwrightError):
    """Base of the solver's errors."""


class LimitReached(SolverError):
    """No configuration was found within the budget and none is proven impossible; a larger budget may find one."""


class VerificationFailed(SolverError):
    """The winner, priced again by the scalar ledger, does not fit or does not take the promised time."""


class BadLegality(SolverError):
    """A legality file breaks its format, or a rule names an unknown fact."""
