"""The OpenAPI document, to the letter: a changed interface shows in review.

After a change on purpose: MESHWRIGHT_UPDATE_GOLDEN=1 python -m pytest tests/golden/test_openapi.py
"""

import json
import os
from pathlib import Path

from service.app import create_app
from service.settings import ServiceSettings

GOLDEN = Path(__file__).with_name("openapi.json")


def test_the_interface_is_the_committed_one() -> None:
    document = create_app(ServiceSettings()).openapi()
    document["info"]["version"] = "golden"
    text = json.dumps(document, indent=1, sort_keys=True) + "\n"
    if os.environ.get("MESHWRIGHT_UPDATE_GOLDEN"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")


def test_operations_have_stable_names() -> None:
    document = create_app(ServiceSettings()).openapi()
    names = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
    assert sorted(names) == [
        "activate_calibration",
        "add_calibration",
        "add_measurement",
        "cancel_frontier",
        "cancel_ladder",
        "cancel_plan",
        "create_estimate",
        "create_frontier",
        "create_job",
        "create_ladder",
        "create_plan",
        "diff_plans",
        "export_plan",
        "forget_cluster",
        "forget_device",
        "forget_model",
        "get_calibration",
        "get_cluster",
        "get_device",
        "get_drift",
        "get_estimate",
        "get_frontier",
        "get_job",
        "get_ladder",
        "get_measurement",
        "get_model",
        "get_plan",
        "healthz",
        "list_audit",
        "list_calibrations",
        "list_clusters",
        "list_devices",
        "list_estimates",
        "list_exports",
        "list_frontiers",
        "list_jobs",
        "list_ladders",
        "list_measurements",
        "list_measurements_of_plan",
        "list_models",
        "list_plans",
        "livez",
        "metrics",
        "problem_page",
        "readyz",
        "register_cluster",
        "register_device",
        "register_model",
        "roll_back_plan",
        "supersede_plan",
        "tag_plan",
        "untag_plan",
        "watch_frontier",
        "watch_ladder",
        "watch_plan",
    ]
    assert "HTTPValidationError" not in document["components"]["schemas"]
