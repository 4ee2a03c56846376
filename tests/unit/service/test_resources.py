"""Measurements, calibrations, models, clusters: made, found, listed, kept apart."""

from typing import Any

import pytest

from planner import calibrations
from service.reading import CONFIGURATION_EXAMPLE
from tests.unit.service.client import JOB, FakePool, client

pytestmark = pytest.mark.usefixtures("databases")
WAIT = {"Prefer": "wait=10"}
RUN = {"outcome": "ok", "step_seconds": 1.1, "peak_allocated_bytes": 900, "versions": {"torch": "2.13"}}
MODEL = {
    "hidden_size": 1024,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
    "vocab_size": 32000,
}


def planned(http: Any, **changes: Any) -> str:
    """The address of a new plan."""
    answer = http.post("/v1/plans", json={**JOB, **changes}, headers=WAIT)
    assert answer.status_code == 200, answer.text
    return str(answer.headers["location"])


def pages(http: Any, path: str, size: int = 2) -> list[Any]:
    """Every item, page after page, by the links."""
    found = []
    link: str | None = f"{path}{'&' if '?' in path else '?'}page_size={size}"
    while link is not None:
        answer = http.get(link)
        assert answer.status_code == 200, answer.text
        assert len(answer.json()["items"]) <= size
        found += answer.json()["items"]
        link = answer.links["next"]["url"] if "next" in answer.links else None
        assert (link is None) == (answer.json()["next_page_token"] is None)
    return found


def test_plans_are_listed_filtered_and_paged() -> None:
    with client() as http:
        places = [planned(http, objective_tolerance=n / 10) for n in range(5)]
        ids = [place.rpartition("/")[2] for place in places]
        assert [item["id"] for item in pages(http, "/v1/plans")] == ids[::-1]
        assert [item["id"] for item in pages(http, "/v1/plans?state=done&status=optimal&model=llama-2-7b")] == ids[::-1]
        assert pages(http, "/v1/plans?state=queued") == []
        assert pages(http, "/v1/plans?created_before=2020-01-01T00:00:00Z") == []
        http.put(f"{places[1]}/tags/best")
        [tagged] = pages(http, "/v1/plans?tag=best")
        assert (tagged["id"], tagged["tags"], tagged["gpus"]) == (ids[1], ["best"], 8)
        assert http.get("/v1/plans?page_token=nonsense").status_code == 422
        assert http.get("/v1/plans?page_size=0").status_code == 422


def test_a_final_plan_has_an_etag() -> None:
    with client() as http:
        place = planned(http)
        answer = http.get(place)
        again = http.get(place, headers={"If-None-Match": f'"other", {answer.headers["etag"]}'})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", answer.headers["etag"])
        assert http.get(place, headers={"If-None-Match": '"other"'}).status_code == 200


def test_measurements_are_kept_beside_the_prediction() -> None:
    with client() as http:
        place = planned(http)
        made = http.post(f"{place}/measurements", json=RUN)
        assert made.status_code == 201, made.text
        assert made.json()["ratios"] == {"step_seconds": pytest.approx(1.1), "peak_allocated_bytes": pytest.approx(0.9)}
        assert http.get(made.headers["location"]).json() == made.json()
        http.post(f"{place}/measurements", json={"outcome": "oom"})
        found = pages(http, f"{place}/measurements", size=1)
        assert [(item["outcome"], item["author"]) for item in found] == [("oom", "anonymous"), ("ok", "anonymous")]
        assert [item["outcome"] for item in pages(http, "/v1/measurements?outcome=oom")] == ["oom"]
        assert http.post("/v1/plans/none/measurements", json=RUN).status_code == 404
        refused = http.post(f"{place}/measurements", json={"outcome": "ok"})
        assert refused.status_code == 422
        assert "neither a step time nor a peak" in refused.json()["detail"]
        endless = http.post(f"{place}/measurements", json={"outcome": "ok", "step_seconds": 1e308})
        assert (endless.status_code, endless.json()["errors"][0]["pointer"]) == (422, "/step_seconds")


def test_a_key_makes_one_thing() -> None:
    with client() as http:
        place, key = planned(http), {"Idempotency-Key": "run-7"}
        first = http.post(f"{place}/measurements", json=RUN, headers=key)
        again = http.post(f"{place}/measurements", json=RUN, headers=key)
        assert first.json() == again.json()
        assert len(pages(http, f"{place}/measurements")) == 1
        other = http.post(f"{place}/measurements", json={**RUN, "steps": 3}, headers=key)
        assert (other.status_code, other.json()["type"]) == (422, "/problems/idempotency-key-reused")
        plan = http.post("/v1/plans", json=JOB, headers=key)
        assert plan.status_code == 422
        assert http.post("/v1/plans", json=JOB, headers={"Idempotency-Key": "a b"}).status_code == 422


def test_a_key_names_a_plan_that_is_being_made() -> None:
    pool = FakePool(held=True)
    with client(pool) as http:
        key = {"Idempotency-Key": "job-1"}
        first, again = (http.post("/v1/plans", json=JOB, headers=key) for _ in range(2))
        assert (first.status_code, again.status_code) == (202, 202)
        assert first.headers["location"] == again.headers["location"]
        assert http.post("/v1/plans", json={**JOB, "objective": "memory"}, headers=key).status_code == 422


def test_equal_requests_are_one_solve() -> None:
    pool = FakePool(held=True)
    with client(pool) as http:
        spelled_out = {**JOB, "objective": ["throughput"], "constraints": {}}
        places = {http.post("/v1/plans", json=body).headers["location"] for body in (JOB, spelled_out, JOB)}
        assert len(places) == 1
        assert http.portal is not None
        assert pool.release is not None
        http.portal.call(pool.release.set)
        made = http.get(places.pop(), headers=WAIT)
        again = http.post("/v1/plans", json=spelled_out)
        assert (again.status_code, again.content) == (200, made.content)
        assert len(pool.tasks) == 1


def test_another_calibration_is_another_answer() -> None:
    own = calibrations.current()
    with client() as http:
        before = planned(http)
        [installed] = http.get("/v1/calibrations").json()["items"]
        assert (installed["current"], installed["installed"], installed["version"]) == (True, True, own.version)
        assert http.get("/v1/plans").json()["items"][0]["calibration_id"] == installed["id"]
        body: dict[str, Any] = {
            "calibration": own.model_dump(mode="json"),
            "reason": "a week of runs",
            "data": {"runs.csv": "a" * 64},
        }
        body["calibration"]["version"] = "lab-1"
        made = http.post("/v1/calibrations", json=body)
        assert made.status_code == 201, made.text
        assert (made.json()["author"], made.json()["reason"]) == ("anonymous", "a week of runs")
        assert made.json()["data"]["runs.csv"] == "a" * 64
        assert http.get(made.headers["location"]).json() == made.json()
        assert [item["current"] for item in pages(http, "/v1/calibrations", size=1)] == [True, False]
        after = planned(http)
        assert after != before
        assert http.get("/v1/plans").json()["items"][0]["calibration_id"] == made.json()["id"]


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        ({"calibration": {"version": "x", "factors": {}}}, "that this release needs, such as"),
        ({"data": {"runs.csv": "abc"}}, "no SHA-256"),
        ({"reason": ""}, "at least 1"),
        ({"reason": "good\nbad"}, "control characters"),
        ({"author": "boss"}, "author: unknown key; keys here are calibration, reason, data, activate, from"),
    ],
)
def test_a_calibration_that_cannot_answer_is_refused(change: dict[str, Any], detail: str) -> None:
    body = {"calibration": calibrations.current().model_dump(mode="json"), "reason": "why", **change}
    with client() as http:
        answer = http.post("/v1/calibrations", json=body)
        assert answer.status_code == 422
        assert detail in answer.json()["detail"]


def test_a_registered_model_is_planned_by_its_name() -> None:
    pool = FakePool()
    with client(pool) as http:
        made = http.post("/v1/models", json={"name": "lab-tiny", "architecture": MODEL})
        assert made.status_code == 201, made.text
        assert (made.json()["origin"], made.json()["hidden_size"]) == ("project", 1024)
        assert http.get("/v1/models/lab-tiny").json() == made.json()
        assert [m["name"] for m in http.get("/v1/models", params={"text": "lab-"}).json()["items"]] == ["lab-tiny"]
        planned(http, model={"preset": "lab-tiny"})
        assert pool.tasks[0].asked.model.architecture == MODEL
        assert http.post("/v1/models", json={"name": "lab-tiny", "architecture": MODEL}).status_code == 409
        assert http.post("/v1/models", json={"name": "llama-2-7b", "architecture": MODEL}).status_code == 409
        assert http.post("/v1/models", json={"name": "bad", "architecture": {}}).status_code == 422
        assert http.delete("/v1/models/lab-tiny").status_code == 204
        assert http.get("/v1/models/lab-tiny").status_code == 404
        assert http.post("/v1/plans", json={**JOB, "model": {"preset": "lab-tiny"}}).status_code == 422


def test_a_request_may_name_a_cluster() -> None:
    pool = FakePool()
    with client(pool) as http:
        made = http.post("/v1/clusters", json={"name": "lab", **JOB["cluster"]})
        assert made.status_code == 201, made.text
        assert made.json()["gpus"] == 8
        assert http.get(made.headers["location"]).json() == made.json()
        assert [item["name"] for item in pages(http, "/v1/clusters")] == ["lab"]
        place = planned(http, cluster="lab")
        assert pool.tasks[0].asked.cluster.pools[0].device == "a100-sxm-80gb"
        assert planned(http) == place, "the same cluster spelled out is the same request"
        unknown = http.post("/v1/plans", json={**JOB, "cluster": "attic"})
        assert unknown.status_code == 422
        assert unknown.json()["errors"][0]["pointer"] == "/cluster"
        assert "there are lab" in unknown.json()["detail"]
        bad = http.post("/v1/clusters", json={"name": "x", "pools": [{"device": "abacus"}]})
        assert bad.status_code == 422
        assert http.delete("/v1/clusters/lab").status_code == 204
        assert http.get(place).status_code == 200


def test_every_list_is_paged_and_filtered() -> None:
    with client() as http:
        devices = [item["name"] for item in pages(http, "/v1/devices", size=7)]
        assert devices == sorted(set(devices))
        assert "a100-sxm-80gb" in devices
        http.post("/v1/models", json={"name": "lab-tiny", "architecture": MODEL})
        names = [item["name"] for item in pages(http, "/v1/models", size=7)]
        assert names == sorted(set(names))
        assert {"lab-tiny", "llama-2-7b"} < set(names)
        assert [item["name"] for item in pages(http, "/v1/models?origin=project")] == ["lab-tiny"]
        assert "lab-tiny" not in [item["name"] for item in pages(http, "/v1/models?origin=catalogue", size=50)]
        plan = planned(http).rpartition("/")[2]
        for name in ("run_a", "run-b", "runxa"):
            assert http.post("/v1/jobs", json={"name": name, "plan_id": plan}).status_code == 201
            assert http.post("/v1/clusters", json={"name": name, **JOB["cluster"]}).status_code == 201
        for what in ("jobs", "clusters"):
            assert {item["name"] for item in pages(http, f"/v1/{what}?text=N_A")} == {"run_a"}, "_ means itself"
        later, sooner = "created_after=2100-01-01T00:00:00Z", "created_before=2100-01-01T00:00:00Z"
        for what in ("plans", "jobs", "calibrations"):
            assert pages(http, f"/v1/{what}?{later}") == []
            assert pages(http, f"/v1/{what}?{sooner}")
        assert pages(http, f"/v1/frontiers?status=optimal&model=gpt2&{sooner}") == []
        assert http.get("/v1/measurements?created_after=yesterday").status_code == 422


def test_devices_have_addresses() -> None:
    with client() as http:
        found = http.get("/v1/devices/A100-SXM4-80GB").json()
        assert (found["name"], found["origin"]) == ("a100-sxm-80gb", "catalogue")
        assert http.get("/v1/devices/abacus").status_code == 404


def test_estimates_are_kept() -> None:
    with client() as http:
        body = {**JOB, "configuration": CONFIGURATION_EXAMPLE}
        made = http.post("/v1/estimates", json=body)
        assert made.status_code == 200, made.text
        again = http.post("/v1/estimates", json=body)
        assert again.content == made.content
        kept = http.get(made.headers["location"])
        assert kept.content == made.content
        assert http.get("/v1/estimates/none").status_code == 404
        [listed] = pages(http, f"/v1/estimates?model=llama-2-7b&status={made.json()['status']}")
        assert listed["id"] == made.json()["envelope"]["id"]
        assert pages(http, "/v1/estimates?model=gpt2") == []
        assert pages(http, "/v1/plans") == [], "estimates are no plans"


@pytest.mark.parametrize(
    "path",
    [
        "/v1/plans/%00",
        "/v1/models/%00",
        "/v1/clusters/a%00b",
        "/v1/jobs/%00",
        "/v1/plans?tag=%00",
        "/v1/plans?created_after=0001-01-01T00:00:00%2B14:00",
        "/v1/plans?created_before=9999-12-31T23:59:59-14:00",
        "/v1/audit?caller=%00",
        "/v1/jobs?text=%00",
    ],
)
def test_what_no_database_can_hold_is_no_server_error(path: str) -> None:
    with client() as http:
        assert http.get(path).status_code in {200, 404, 422}


@pytest.mark.parametrize("value", [-1.0, 0.0, 1e300, 1.6])
def test_a_calibration_that_no_machine_has_is_refused(value: float) -> None:
    body: dict[str, Any] = {"calibration": calibrations.current().model_dump(mode="json"), "reason": "why"}
    body["calibration"]["factors"]["gemm_efficiency.a100.bf16"]["value"] = value
    with client() as http:
        answer = http.post("/v1/calibrations", json=body)
        assert answer.status_code == 422, answer.text
        [found] = answer.json()["errors"]
        assert found["pointer"] == "/calibration/factors/gemm_efficiency.a100.bf16/value"
        assert f"is {value:g}, outside of 0.082 to 1.5" in found["detail"]
        assert len(http.get("/v1/calibrations").json()["items"]) == 1


def test_nobody_writes_in_the_name_of_another() -> None:
    with client() as http:
        place = planned(http)
        for where, body in (
            (f"{place}/measurements", RUN),
            ("/v1/jobs", {"name": "pretrain", "plan_id": place.rpartition("/")[2]}),
        ):
            refused = http.post(where, json={**body, "author": "boss"})
            assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/author")
        for change in ({"notes": "a\x1b[2Jb"}, {"versions": {"torch": "2\n3"}}, {"versions": {"to\u202erch": "2"}}):
            refused = http.post(f"{place}/measurements", json={**RUN, **change})
            assert refused.status_code == 422, change
            assert "control characters" in refused.text
        assert http.post(f"{place}/measurements", json={**RUN, "notes": "two\nlines"}).status_code == 201
