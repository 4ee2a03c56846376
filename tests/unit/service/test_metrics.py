"""What Prometheus reads: solves, hits of the store, the queue, and how predictions did."""

import re

import pytest
from prometheus_client.metrics import MetricWrapperBase

from service import metrics
from service.errors import StorageUnavailable
from service.security import tokens
from tests.contracts.tree import ROOT
from tests.unit.service.client import JOB, client

pytestmark = pytest.mark.usefixtures("databases")


def value(name: str, **labels: str) -> float:
    return metrics.REGISTRY.get_sample_value(name, labels) or 0.0


def figures() -> dict[str, float]:
    return {
        "queued": value("meshwright_plan_requests_total", verb="plan", result="queued"),
        "stored": value("meshwright_plan_requests_total", verb="plan", result="stored"),
        "solved": value("meshwright_plans_total", verb="plan", status="done"),
        "timed": value("meshwright_solve_duration_seconds_count", verb="plan"),
        "measured": value("meshwright_prediction_error_ratio_count", quantity="step_seconds"),
    }


def test_what_happens_is_counted_once() -> None:
    with client() as http:
        before = figures()
        made = http.post("/v1/plans", json=JOB, headers={"Prefer": "wait=10"})
        assert http.post("/v1/plans", json=JOB).status_code == 200
        run = {"outcome": "ok", "step_seconds": 3.5}
        for _ in range(2):
            place = f"{made.headers['location']}/measurements"
            assert http.post(place, json=run, headers={"Idempotency-Key": "run-1"}).status_code == 201
        after = figures()
        text = http.get("/metrics").text
    assert {name: after[name] - before[name] for name in after} == dict.fromkeys(after, 1.0)
    assert 'meshwright_queue_depth{state="queued"} 0.0' in text
    assert "meshwright_build_info{version=" in text
    assert made.headers["location"].rpartition("/")[2] not in text


def test_who_scrapes_goes_on_while_the_database_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: object) -> None:
        raise StorageUnavailable("away")

    with client() as http:
        assert http.get("/metrics").status_code == 200
        monkeypatch.setattr(http.app.state.runtime.database, "reading", away)  # type: ignore[attr-defined]
        text = http.get("/metrics").text
        assert "meshwright_build_info{version=" in text
        assert "meshwright_queue_depth{" not in text
        other = {"Authorization": f"Bearer {tokens.make().text}"}
        assert http.get("/metrics", headers=other).status_code == 503
        assert http.get("/v1/plans").status_code == 503, "for the metrics alone"
        monkeypatch.setattr("service.security.authenticate.REMEMBERED_SECONDS", 0.0)
        assert http.get("/metrics").status_code == 503


def test_what_has_not_happened_yet_is_none() -> None:
    """An alert on an increase needs a series that was there before."""
    with client() as http:
        text = http.get("/metrics").text
    for status in ("done", "failed", "cancelled", "late"):
        assert f'meshwright_plans_total{{status="{status}",verb="plan"}}' in text
    for quantity in metrics.QUANTITIES:
        assert f'meshwright_drifting_kinds{{quantity="{quantity}"}}' in text


def test_every_metric_is_documented_with_its_labels() -> None:
    text = (ROOT / "docs" / "http.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(meshwright_\w+)` \| (.*?) \|", text, re.MULTILINE))
    told = {name: tuple(re.findall(r"`(\w+)`", labels)) for name, labels in rows.items()}
    own = [one for one in vars(metrics).values() if isinstance(one, MetricWrapperBase)]
    totals = {one._name: "_total" if one._type == "counter" else "" for one in own}
    assert told == {one._name + totals[one._name]: one._labelnames for one in own}
