"""What each operation asks of its caller: one table, in which every route must stand.

A route that is missing here is refused to everybody, and fails the tests.
"""

from collections.abc import Mapping
from typing import Final, Literal, get_args

Scope = Literal["plan", "measure", "calibrate", "admin"]
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
Access = Literal["public", "any", "plan", "measure", "calibrate", "admin"]
"""public: nobody is asked who they are. any: a caller of the project, with whatever scope. Else: that scope."""

_READS: Final = (
    *("list_plans", "get_plan", "watch_plan", "list_exports", "export_plan", "diff_plans"),
    *("list_estimates", "get_estimate"),
    *("list_frontiers", "get_frontier", "watch_frontier", "list_ladders", "get_ladder", "watch_ladder"),
    *("list_measurements", "list_measurements_of_plan", "get_measurement"),
    *("list_jobs", "get_job", "list_calibrations", "get_calibration", "get_drift"),
    *("list_models", "get_model", "list_devices", "get_device", "list_clusters", "get_cluster"),
    "metrics",
)
_PLANNING: Final = (
    *("create_plan", "cancel_plan", "create_estimate"),
    *("create_frontier", "cancel_frontier", "create_ladder", "cancel_ladder"),
    *("tag_plan", "untag_plan", "create_job", "supersede_plan", "roll_back_plan"),
    *("register_model", "forget_model", "register_cluster", "forget_cluster"),
    *("register_device", "forget_device"),
)
ACCESS: Final[Mapping[str, Access]] = {
    **dict.fromkeys(("livez", "readyz", "healthz", "problem_page", "docs_page"), "public"),
    **dict.fromkeys(_READS, "any"),
    **dict.fromkeys(_PLANNING, "plan"),
    "add_measurement": "measure",
    **dict.fromkeys(("add_calibration", "activate_calibration"), "calibrate"),
    "list_audit": "admin",
}
"""Operation id -> who may. Rows of another project are not found, whatever the scope."""


def grants(scopes: frozenset[Scope], access: Access) -> bool:
    """Whether a caller of these scopes may do what asks for `access`; admin may do everything in its project."""
    return access in {"public", "any"} or access in scopes or "admin" in scopes
