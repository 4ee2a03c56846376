"""The service learns: measurements become calibrations, by order or by themselves; drift is said; roll-backs hold."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from cost_models import catalog
from planner.fitting.site_runs import foretold
from service import metrics
from service.constants import CalibrationShelf
from service.trust import Trust
from tests.databases import ambient
from tests.unit.executor.plans import feasible
from tests.unit.service.client import JOB, FakePool, client
from tests.unit.service.tenants import world
from tests.unit.service.test_resources import pages, planned

pytestmark = pytest.mark.usefixtures("databases")
WAIT = {"Prefer": "wait=30"}
ORDER = {"from": "measurements", "reason": "a day of runs"}
PLAN = feasible()
assert PLAN.configuration is not None
SAID = foretold(PLAN.request, PLAN.configuration, catalog.calibration())


def run(slower: float = 1.0, **changes: Any) -> dict[str, Any]:
    """A run of the plan that every test gets, against what the shipped constants say."""
    figures = {
        "outcome": "ok",
        "step_seconds": SAID.values["step_seconds"] * slower,
        "peak_allocated_bytes": round(SAID.values["peak_allocated_bytes"]),
    }
    return figures | changes


def measured(http: Any, place: str, count: int, slower: float = 1.0, **changes: Any) -> list[Any]:
    """`count` runs, each a little different."""
    answers = []
    for number in range(count):
        body = run(slower * (1 + 0.004 * (number % 5 - 2)), **changes)
        answers.append(http.post(f"{place}/measurements", json=body))
        assert answers[-1].status_code == 201, answers[-1].text
    return [answer.json() for answer in answers]


def current(http: Any) -> Any:
    [found] = [item for item in pages(http, "/v1/calibrations", size=50) if item["current"]]
    return found


def settled(http: Any, seen: int) -> list[Any]:
    """The versions, as soon as there are so many."""
    for _ in range(300):
        found = http.get("/v1/calibrations").json()["items"]
        if len(found) >= seen:
            return list(found)
        time.sleep(0.2)
    raise AssertionError(found)


def test_measurements_become_a_calibration_that_new_plans_use() -> None:
    pool = FakePool()
    with client(pool, recalibrate_after=0) as http:
        place = planned(http)
        measured(http, place, 12, slower=1.2)
        wrong = measured(http, place, 1, peak_allocated_bytes=3)[0]
        left_out = measured(http, place, 1, slower=1.2)[0]
        assert len(http.get("/v1/calibrations").json()["items"]) == 1, "nothing was asked for"
        order = {**ORDER, "exclude": [left_out["id"]]}
        made = http.post("/v1/calibrations", json=order, headers=WAIT)
        assert made.status_code == 201, made.text
        found = made.json()
        assert (found["author"], found["reason"], found["learned"]) == ("anonymous", "a day of runs", True)
        evidence = found["evidence"]
        installed = http.get("/v1/calibrations").json()["items"][1]["id"]
        assert (evidence["automatic"], evidence["prior"]) == (False, installed)
        assert len(evidence["used"]) == 13
        assert all(len(one["sha256"]) == 64 for one in evidence["used"])
        [aside] = evidence["set_aside"]
        assert (aside["measurement_id"], aside["quantity"]) == (wrong["id"], "peak_allocated_bytes")
        assert "as if it were in" in aside["why"]
        assert left_out["id"] not in made.text
        assert set(found["data"]) > {"measurements"}
        assert http.get(made.headers["location"]).json() == found
        assert current(http)["id"] == found["id"]
        after = planned(http)
        assert after != place, "an equal request under a new calibration is a new plan"
        assert http.get("/v1/plans").json()["items"][0]["calibration_id"] == found["id"]
        factors = pool.tasks[-1].calibration
        assert factors is not None
        assert factors.version == found["version"]


def test_without_a_wait_it_is_made_meanwhile() -> None:
    pool = FakePool(held=True)
    with client(pool, recalibrate_after=0) as http:
        first = http.post("/v1/calibrations", json=ORDER)
        assert first.status_code == 202, first.text
        assert first.json()["state"] in {"queued", "running"}
        again = http.post("/v1/calibrations", json={**ORDER, "reason": "the same once more"})
        assert again.headers["location"] == first.headers["location"], "one of the same measurements is under way"
        assert http.get(first.headers["location"]).status_code == 202
        for family in ("a100", "h100", "cpu"):
            assert http.post("/v1/calibrations", json={**ORDER, "families": [family]}).status_code == 202
        assert http.post("/v1/calibrations", json={**ORDER, "families": ["t4"]}).status_code == 429
        assert http.portal is not None
        assert pool.release is not None
        http.portal.call(pool.release.set)
        made = http.get(first.headers["location"], headers=WAIT)
        assert (made.status_code, made.json()["evidence"]["used"]) == (200, [])
        assert http.get("/v1/calibrations/none").status_code == 404


def test_enough_runs_make_one_by_themselves_unless_a_version_is_held() -> None:
    with client(recalibrate_after=4) as http:
        place = planned(http)
        measured(http, place, 3)
        assert len(http.get("/v1/calibrations").json()["items"]) == 1
        measured(http, place, 1)
        [made, installed] = settled(http, 2)
        assert (made["author"], made["current"]) == ("meshwright", True)
        assert made["reason"] == "4 runs since the last calibration"
        back = http.post(f"/v1/calibrations/{installed['id']}/activate", json={"reason": "too early"})
        assert (back.status_code, back.json()["current"]) == (200, True)
        assert [one["reason"] for one in back.json()["activations"]] == ["too early"]
        measured(http, place, 5)
        assert len(http.get("/v1/calibrations").json()["items"]) == 2, "what somebody activated stays"
        follow = {"reason": "go on", "hold": False}
        assert http.post(f"/v1/calibrations/{made['id']}/activate", json=follow).json()["current"]
        measured(http, place, 1)
        assert settled(http, 3)[0]["current"]
        assert http.post("/v1/calibrations/none/activate", json=follow).status_code == 404


def test_two_replicas_make_it_once() -> None:
    alike: dict[str, Any] = {"database_url": ambient.fresh(), "recalibrate_after": 6, "poll_seconds": 2.0}
    with client(**alike) as one, client(**alike) as other:
        place = planned(one)
        for http in (one, other):  # the framework makes a route ready with its first request, which is not thread-safe
            measured(http, place, 1)
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(lambda http: measured(http, place, 2), (one, other)))
        settled(one, 2)
        time.sleep(0.5)
        assert [item["learned"] for item in other.get("/v1/calibrations").json()["items"]] == [True, False]


def test_drift_is_said_in_answers_metrics_and_new_plans() -> None:
    pool = FakePool()
    with client(pool, recalibrate_after=0) as http:
        place = planned(http)
        assert not any(one["drifting"] for one in measured(http, place, 20)[-1]["drift"])
        made = http.post("/v1/calibrations", json=ORDER, headers=WAIT).json()
        address = f"/v1/calibrations/{made['id']}/drift"
        assert http.get(address).json()["drifting"] is False
        wrong = measured(http, place, 1, slower=20.0)[0]
        assert not any(one["drifting"] for one in wrong["drift"]), "one run is no drift"
        told = [any(one["drifting"] for one in answer["drift"]) for answer in measured(http, place, 5, slower=9.0)]
        assert told.index(True) <= 4
        found = http.get(address).json()
        [kind] = [one for one in found["kinds"] if one["drifting"]]
        assert (found["drifting"], kind["quantity"], kind["framework"]) == (True, "step_seconds", "deepspeed")
        assert kind["ratio"] > 5
        assert metrics.REGISTRY.get_sample_value("meshwright_drifting_kinds", {"quantity": "step_seconds"}) == 1
        metrics.DRIFTING.labels("step_seconds").set(0)  # as a replica that took none of these runs shows it
        assert http.portal is not None
        runtime: Any = http.app.state.runtime  # type: ignore[attr-defined]
        http.portal.call(Trust(runtime.database, CalibrationShelf()).refreshed)
        assert metrics.REGISTRY.get_sample_value("meshwright_drifting_kinds", {"quantity": "step_seconds"}) == 1
        noted = current(http)
        assert noted["version"].endswith("+drift")
        assert "drift: step_seconds of deepspeed on cpu" in noted["reason"]
        planned(http)
        factors = pool.tasks[-1].calibration
        assert factors is not None
        assert "drift.step_seconds.deepspeed@cpu" in factors.factors
        well = measured(http, place, 6)
        assert not any(one["drifting"] for one in well[-1]["drift"])
        assert not current(http)["version"].endswith("+drift")


def test_a_run_out_of_memory_is_learned_at_once() -> None:
    with client() as http:
        place = planned(http)
        body = {"outcome": "oom", "requested_bytes": 2**34, "phase": "step"}
        answer = http.post(f"{place}/measurements", json=body)
        assert (answer.status_code, answer.json()["requested_bytes"]) == (201, 2**34), answer.text
        made = settled(http, 2)[0]
        assert "ran out of memory" in made["reason"]
        evidence = http.get(f"/v1/calibrations/{made['id']}").json()["evidence"]
        assert [one["measurement_id"] for one in evidence["used"]] == [answer.json()["id"]]
        assert evidence["raised"] == ["fragmentation.cpu@cpu", "fragmentation_q99.cpu@cpu"]


def test_what_is_posted_whole_may_wait_to_be_activated() -> None:
    own = catalog.calibration().model_dump(mode="json") | {"version": "lab-1"}
    with client() as http:
        made = http.post("/v1/calibrations", json={"calibration": own, "reason": "later", "activate": False})
        assert (made.status_code, made.json()["current"]) == (201, False)
        other = http.post("/v1/calibrations", json={"calibration": own | {"version": "lab-2"}, "reason": "now"}).json()
        assert current(http)["id"] == other["id"]
        key = {"Idempotency-Key": "roll-back-1"}
        for _ in range(2):
            back = http.post(f"{made.headers['location']}/activate", json={"reason": "before"}, headers=key)
        assert len(back.json()["activations"]) == 1
        assert current(http)["id"] == made.json()["id"]
        assert json.loads(json.dumps(back.json()["activations"][0]))["held"] is True


def test_projects_learn_apart() -> None:
    with world(recalibrate_after=2) as found:
        place = found.ask("admin", "POST", "/v1/plans", json=JOB, headers=WAIT).headers["location"]
        for _ in range(2):
            assert found.ask("measure", "POST", f"{place}/measurements", json=run(1.5)).status_code == 201
        for _ in range(300):
            mine = found.ask("admin", "GET", "/v1/calibrations").json()["items"]
            if len(mine) > 1:
                break
            time.sleep(0.1)
        assert (len(mine), mine[0]["learned"]) == (2, True)
        assert len(found.ask("neighbour", "GET", "/v1/calibrations").json()["items"]) == 1
        assert found.ask("neighbour", "GET", f"/v1/calibrations/{mine[0]['id']}").status_code == 404


def test_what_no_run_can_have_is_told_and_kept_out_of_metrics() -> None:
    quantities = {
        "step_seconds": 1e-320,
        "peak_allocated_bytes": 9e15,
        "peak_reserved_bytes": 9e15,
        "peak_device_bytes": 9e15,
    }

    def counts(http: Any) -> dict[str, float]:
        lines = http.get("/metrics").text.splitlines()
        start = "meshwright_prediction_error_ratio_count{quantity="
        return {line.split('"')[1]: float(line.split()[-1]) for line in lines if line.startswith(start)}

    with client(recalibrate_after=0) as http:
        place = planned(http)
        measured(http, place, 1)
        before = counts(http)
        made = http.post(f"{place}/measurements", json={"outcome": "ok", **quantities})
        assert made.status_code == 201, made.text
        assert set(made.json()["set_aside"]) == set(quantities)
        assert "faster than the peak" in made.json()["set_aside"]["step_seconds"]
        assert "more than the" in made.json()["set_aside"]["peak_device_bytes"]
        assert counts(http) == before
        assert http.get(made.headers["location"]).json()["set_aside"] == made.json()["set_aside"]
        [good] = measured(http, place, 1)
        assert good["set_aside"] == {}
        assert counts(http)["step_seconds"] == before["step_seconds"] + 1
