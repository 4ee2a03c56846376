"""Write service/examples.json: what the service answers to the requests of its own documentation, one an operation.

Ids and instants are replaced by ones that stay; everything else is what the service said.
"""

import json
import re
import tempfile
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from planner import calibrations
from service.app import create_app
from service.reading import CONFIGURATION_EXAMPLE
from service.routes import calibrations as calibrations_route
from service.routes import clusters, devices, measurements, models
from service.settings import ServiceSettings

TARGET = Path(__file__).parents[1] / "service" / "examples.json"
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
INSTANT = re.compile(r"20\d\d-\d\d-\d\dT[0-9:.]+(?:Z|\+00:00)")
HEX = re.compile(r"\b[0-9a-f]{32}\b")
JOB: dict[str, Any] = {
    "model": {"preset": "llama-2-7b"},
    "cluster": {"pools": [{"device": "a100-sxm-80gb", "nodes": 1, "gpus_per_node": 8}]},
    "training": {"sequence_length": 4096, "global_batch_size": 128},
}
SMALL: dict[str, Any] = {
    "model": {"preset": "gpt2"},
    "cluster": {"pools": [{"device": "a100-sxm-80gb", "nodes": 1, "gpus_per_node": 2}]},
    "training": {"sequence_length": 1024, "global_batch_size": 8},
}
RUN: dict[str, Any] = {"step_seconds": 0.041, "peak_allocated_bytes": 3_960_000_000}
"""Of the small job."""
WAIT = {"Prefer": "wait=60"}


def main() -> None:
    """Ask for everything once."""
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        settings = ServiceSettings(database_url=f"sqlite:///{folder}/examples.db", authentication="auto")
        with TestClient(create_app(settings), base_url="http://127.0.0.1") as http:
            record(http, found)
    text = json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False)
    TARGET.write_text(lasting(text) + "\n", encoding="utf-8")


def record(http: TestClient, found: dict[str, dict[str, Any]]) -> None:
    """The answers by operation and status."""

    def ask(operation: str, method: str, path: str, body: Any = None, headers: Any = None) -> Any:
        answer = http.request(method, path, json=body, headers=headers)
        assert answer.status_code < 400 or answer.status_code == 409, (operation, answer.text)
        if answer.is_success and answer.content:
            kind = answer.headers["content-type"].partition(";")[0]
            told = shortened(answer.json()) if kind == "application/json" else answer.text
            found.setdefault(operation, {})[str(answer.status_code)] = {"content": kind, "example": told}
        return answer

    for verb, extra in (("plan", {}), ("frontier", {"points": 2}), ("ladder", {"low": 1, "high": 2})):
        made = ask(f"create_{verb}", "POST", f"/v1/{verb}s", {**SMALL, **extra}, WAIT)
        ask(f"get_{verb}", "GET", made.headers["location"])
        larger = {**SMALL, **extra, "training": {"sequence_length": 1024, "global_batch_size": 512}}
        pending = ask(f"create_{verb}", "POST", f"/v1/{verb}s", larger)
        watched = http.get(f"{made.headers['location']}/events").text
        found[f"watch_{verb}"] = {"200": {"content": "text/event-stream", "example": watched}}
        ask(f"get_{verb}", "GET", pending.headers["location"])
        ask(f"cancel_{verb}", "DELETE", pending.headers["location"])
    plan = http.get("/v1/plans?state=done").json()["items"][-1]["id"]
    other = http.post("/v1/plans", json={**SMALL, "objective": "memory"}, headers=WAIT).headers["location"][-36:]
    for operation, path in (("list_exports", ""), ("export_plan", "/deepspeed?allow_lossy=true")):
        ask(operation, "GET", f"/v1/plans/{plan}/exports{path}")
    estimate = ask("create_estimate", "POST", "/v1/estimates", {**JOB, "configuration": CONFIGURATION_EXAMPLE})
    ask("get_estimate", "GET", estimate.headers["location"])
    measured = ask("add_measurement", "POST", f"/v1/plans/{plan}/measurements", {**measurements.EXAMPLE, **RUN})
    ask("get_measurement", "GET", measured.headers["location"])
    ask("list_measurements_of_plan", "GET", f"/v1/plans/{plan}/measurements")
    ask("tag_plan", "PUT", f"/v1/plans/{plan}/tags/best")
    ask("untag_plan", "DELETE", f"/v1/plans/{other}/tags/best")
    ask("diff_plans", "GET", f"/v1/plans/{plan}/diff/{other}")
    ask("create_job", "POST", "/v1/jobs", {"name": "pretrain-7b", "plan_id": plan, "reason": "first plan"})
    ask("supersede_plan", "POST", "/v1/jobs/pretrain-7b/versions", {"plan_id": other, "reason": "less memory"})
    ask("roll_back_plan", "POST", "/v1/jobs/pretrain-7b/rollback", {"reason": "slower than the first"})
    ask("get_job", "GET", "/v1/jobs/pretrain-7b")
    own = {"reason": "a week of runs", "calibration": calibrations.current().model_dump(mode="json")}
    added = ask("add_calibration", "POST", "/v1/calibrations", own)
    ask("get_calibration", "GET", added.headers["location"])
    ask("get_drift", "GET", f"{added.headers['location']}/drift")
    learned = ask("add_calibration", "POST", "/v1/calibrations", calibrations_route.LEARNED)
    for headers in (None, WAIT):
        ask("get_calibration", "GET", learned.headers["location"], headers=headers)
    ask("activate_calibration", "POST", f"{added.headers['location']}/activate", calibrations_route.ROLL_BACK)
    ask("get_model", "GET", ask("register_model", "POST", "/v1/models", models.EXAMPLE).headers["location"])
    ask("get_cluster", "GET", ask("register_cluster", "POST", "/v1/clusters", clusters.EXAMPLE).headers["location"])
    ask("get_device", "GET", ask("register_device", "POST", "/v1/devices", devices.EXAMPLE).headers["location"])
    for what in ("plans", "frontiers", "ladders", "estimates", "measurements", "jobs", "calibrations", "clusters"):
        ask(f"list_{what}", "GET", f"/v1/{what}?page_size=1")
    for what in ("models", "devices", "audit"):
        ask(f"list_{what}", "GET", f"/v1/{what}?page_size=1")
    for operation, path in (("livez", ""), ("readyz", ""), ("healthz", ""), ("problem_page", "problems/not-found")):
        ask(operation, "GET", f"/{path or operation}")
    text = "".join(http.get("/metrics").text.partition("# HELP meshwright_queue_depth")[1:])
    found["metrics"] = {"200": {"content": "text/plain", "example": text[:400].rpartition("\n")[0] + "\n"}}


def shortened(value: Any, depth: int = 0) -> Any:
    """Whole tables of factors say nothing more than their first entries."""
    if isinstance(value, dict):
        few = list(value.items())[:2] if depth and len(value) > 60 else value.items()
        return {key: shortened(found, depth + 1) for key, found in few}
    if isinstance(value, list):
        return [shortened(found, depth + 1) for found in value[:2]]
    return value


def lasting(text: str) -> str:
    """With ids and instants that do not change from run to run."""
    for place, name in enumerate(dict.fromkeys(UUID.findall(text))):
        text = text.replace(name, f"019a2c5e-0000-7000-8000-{place:012d}")
    for place, name in enumerate(dict.fromkeys(HEX.findall(text))):
        text = text.replace(name, f"{place:032x}")
    return INSTANT.sub("2026-01-02T03:04:05Z", text)


if __name__ == "__main__":
    main()
