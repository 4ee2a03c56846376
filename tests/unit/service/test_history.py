"""The notebook: differences, tags, the plans that a job has had."""

from typing import Any

import pytest

from service.solving.worker import Answer, Task
from tests.unit.executor.plans import feasible, prediction
from tests.unit.service.client import JOB, FakePool, client
from tests.unit.service.test_resources import RUN, pages, planned

pytestmark = pytest.mark.usefixtures("databases")


def growing() -> FakePool:
    """Each plan is slower than the one before."""
    pool = FakePool()

    def answer(task: Task) -> Answer:
        envelope = feasible().envelope.model_copy(update={"id": task.id})
        plan = feasible(envelope=envelope, prediction=prediction(step_seconds=float(len(pool.tasks))))
        return Answer(plan_json=plan.model_dump_json())

    pool.answer = answer
    return pool


def two(http: Any) -> tuple[str, str]:
    places = [planned(http, objective_tolerance=n / 10) for n in range(2)]
    return places[0].rpartition("/")[2], places[1].rpartition("/")[2]


def test_the_difference_of_two_plans() -> None:
    with client(growing()) as http:
        left, right = two(http)
        http.post(f"/v1/plans/{right}/measurements", json=RUN)
        found = http.get(f"/v1/plans/{left}/diff/{right}").json()
        changes = {change["path"]: change for change in found["prediction"]}
        assert changes["/time/step_seconds"] == {"path": "/time/step_seconds", "left": 1.0, "right": 2.0, "ratio": 2.0}
        assert found["configuration"] == []
        assert found["left_measured"] == []
        assert found["right_measured"][0]["ratios"]["step_seconds"] == pytest.approx(0.55)
        same = http.get(f"/v1/plans/{left}/diff/{left}").json()
        assert (same["prediction"], same["request"]) == ([], [])
        assert http.get(f"/v1/plans/{left}/diff/none").status_code == 404


def test_tags_come_and_go() -> None:
    with client() as http:
        place = planned(http)
        assert http.put(f"{place}/tags/best").json()["tags"] == ["best"]
        assert http.put(f"{place}/tags/best").json()["tags"] == ["best"]
        assert http.put(f"{place}/tags/a-first").json()["tags"] == ["a-first", "best"]
        assert http.delete(f"{place}/tags/best").json()["tags"] == ["a-first"]
        assert http.put("/v1/plans/none/tags/best").status_code == 404


def test_a_job_is_superseded_and_rolled_back() -> None:
    with client(growing()) as http:
        first, second = two(http)
        made = http.post("/v1/jobs", json={"name": "pretrain", "plan_id": first, "reason": "start"})
        assert made.status_code == 201, made.text
        http.post(f"/v1/plans/{first}/measurements", json=RUN)
        place = made.headers["location"]
        after = http.post(f"{place}/versions", json={"plan_id": second, "reason": "more memory"}).json()
        assert (after["version"], after["plan_id"]) == (2, second)
        back = http.post(f"{place}/rollback", json={"reason": "slower than hoped"}).json()
        assert [(v["number"], v["plan_id"], v["restores"]) for v in back["versions"]] == [
            (1, first, None),
            (2, second, None),
            (3, first, 1),
        ]
        assert [len(v["measured"]) for v in back["versions"]] == [1, 0, 1]
        assert back["versions"][0]["measured"][0]["ratios"]["step_seconds"] == pytest.approx(1.1)
        assert [v["author"] for v in back["versions"]] == ["anonymous"] * 3
        assert http.get(place).json() == back
        [listed] = pages(http, "/v1/jobs")
        assert (listed["name"], listed["version"], listed["plan_id"]) == ("pretrain", 3, first)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/jobs", {"name": "pretrain", "plan_id": "PLAN"}, 409),
        ("/v1/jobs", {"name": "other", "plan_id": "none"}, 404),
        ("/v1/jobs/none/versions", {"plan_id": "PLAN"}, 404),
        ("/v1/jobs/pretrain/rollback", {}, 409),
        ("/v1/jobs/pretrain/rollback", {"to": 9}, 409),
        ("/v1/jobs/pretrain/rollback", {"to": 0}, 422),
    ],
)
def test_what_a_job_cannot_follow(path: str, body: dict[str, Any], status: int) -> None:
    with client() as http:
        plan = planned(http).rpartition("/")[2]
        http.post("/v1/jobs", json={"name": "pretrain", "plan_id": plan})
        answer = http.post(path, json={key: plan if value == "PLAN" else value for key, value in body.items()})
        assert answer.status_code == status, answer.text


def test_a_cancelled_plan_is_gone_and_asked_for_anew() -> None:
    pool = FakePool(held=True)
    with client(pool) as http:
        place = http.post("/v1/plans", json=JOB).headers["location"]
        while not pool.tasks:
            http.get(place)
        assert http.delete(place).status_code == 200
        ended = http.get(place, headers={"Prefer": "wait=10"})
        assert (ended.status_code, ended.json()["type"]) == (410, "/problems/cancelled")
        assert http.post("/v1/plans", json=JOB).headers["location"] != place
        assert http.delete("/v1/plans/none").status_code == 404


def test_a_waiting_plan_is_cancelled_at_once_and_a_made_one_never() -> None:
    pool = FakePool(held=True)
    pool.capacity = 0
    with client(pool) as http:
        place = http.post("/v1/plans", json=JOB).headers["location"]
        assert http.delete(place).json()["state"] == "cancelled"
        assert http.get(place).status_code == 410
    with client() as http:
        assert http.delete(planned(http)).status_code == 409


def test_progress_is_streamed_until_the_end() -> None:
    pool = FakePool(held=True)
    with client(pool) as http:
        place = http.post("/v1/plans", json=JOB).headers["location"]
        while http.get(place).json()["progress"] is None:
            pass
        assert http.portal is not None
        assert pool.release is not None
        http.portal.call(pool.release.set)
        with http.stream("GET", f"{place}/events") as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            lines = list(stream.iter_lines())
        events = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
        assert events[-1] == "ended"
        assert set(events[:-1]) <= {"progress"}
        assert http.get("/v1/plans/none/events").status_code == 404
