"""The life of a plan over HTTP, over a pool that does as told."""

import time
from typing import Any

import pytest

from planner.plan import Plan
from service.errors import SolveTimedOut, WorkerDied
from service.problem_kinds import INVALID
from service.problems import problem
from service.solving.worker import Answer, Task
from tests.unit.service.client import JOB, FakePool, client

pytestmark = pytest.mark.usefixtures("databases")


PROGRESS = {"text": "throughput 1.5", "objective": "throughput", "incumbent": 1.5, "bound": 1.2, "gap": 0.2}


def until(get: Any, status: int) -> Any:
    deadline = time.monotonic() + 10
    while (answer := get()).status_code != status and time.monotonic() < deadline:
        time.sleep(0.01)
    return answer


def test_a_quick_plan_is_the_answer_when_the_caller_waits() -> None:
    with client() as http:
        answer = http.post("/v1/plans", json=JOB, headers={"Prefer": "wait=5"})
        assert answer.status_code == 200
        assert answer.headers["preference-applied"] == "wait=5"
        plan = Plan.from_json(answer.content)
        assert answer.headers["location"] == f"/v1/plans/{plan.envelope.id}"
        again = http.get(answer.headers["location"])
        assert again.content == answer.content


@pytest.mark.parametrize("preference", [None, "respond-async", "wait=never", "wait=-1", "wait=nan", "wait=0"])
def test_without_a_wait_the_answer_is_a_place_to_look(preference: str | None) -> None:
    pool = FakePool(held=True)
    with client(pool) as http:
        answer = http.post("/v1/plans", json=JOB, headers={} if preference is None else {"Prefer": preference})
        assert answer.status_code == 202
        assert answer.json()["state"] in {"queued", "running"}
        assert int(answer.headers["retry-after"]) >= 1
        while (pending := http.get(answer.headers["location"])).json()["progress"] is None:
            assert pending.status_code == 202
            time.sleep(0.01)
        assert pending.json()["progress"] == PROGRESS
        assert pool.release is not None
        assert http.portal is not None
        http.portal.call(pool.release.set)
        assert until(lambda: http.get(answer.headers["location"]), 200).json()["status"] == "optimal"


def test_a_wait_ends_at_the_installations_limit() -> None:
    with client(FakePool(held=True), max_wait_seconds=0.05) as http:
        started = time.monotonic()
        answer = http.post("/v1/plans", json=JOB, headers={"Prefer": "respond-async, wait=3600"})
        assert answer.status_code == 202
        assert answer.headers["preference-applied"] == "wait=0.05"
        assert time.monotonic() - started < 5


def test_a_refused_request_is_a_problem_at_its_address_too() -> None:
    def refuse(_: Task) -> Answer:
        return Answer(problem=problem(INVALID, "tensor_parallel 16 does not divide num_attention_heads 40"))

    with client(FakePool(refuse)) as http:
        answer = http.post("/v1/plans", json=JOB, headers={"Prefer": "wait=5"})
        assert answer.status_code == 422
        assert "16 does not divide" in answer.json()["detail"]
        assert http.get(answer.headers["location"]).status_code == 422


@pytest.mark.parametrize(
    ("error", "status"), [(WorkerDied("the solver process ended"), 500), (SolveTimedOut("too long"), 504)]
)
def test_work_that_stops_is_a_problem_of_its_own(error: Exception, status: int) -> None:
    def stop(_: Task) -> Answer:
        raise error

    with client(FakePool(stop)) as http:
        answer = http.post("/v1/plans", json=JOB, headers={"Prefer": "wait=5"})
        assert answer.status_code == status
        assert answer.json()["detail"] == str(error)


def test_a_full_queue_is_busy_and_says_when_to_return() -> None:
    with client(FakePool(held=True), max_waiting=2) as http:
        answers = [http.post("/v1/plans", json={**JOB, "objective_tolerance": n / 10}) for n in range(3)]
        assert [answer.status_code for answer in answers] == [202, 202, 503]
        assert answers[2].headers["retry-after"]


def test_an_export_holds_the_files_of_the_target() -> None:
    with client() as http:
        place = http.post("/v1/plans", json=JOB, headers={"Prefer": "wait=5"}).headers["location"]
        found = http.get(f"{place}/exports/deepspeed").json()
        assert found["target"] == "deepspeed"
        assert "ds_config.json" in {artifact["path"] for artifact in found["artifacts"]}
        assert http.get(f"{place}/exports/abacus").status_code == 404


def test_an_export_that_would_lose_something_is_refused_unless_allowed() -> None:
    with client() as http:
        place = http.post("/v1/plans", json=JOB, headers={"Prefer": "wait=5"}).headers["location"]
        refused = http.get(f"{place}/exports/megatron")  # the plan is for DeepSpeed
        assert refused.status_code == 409
        assert refused.json()["type"] == "/problems/export-unsupported"
        assert http.get(f"{place}/exports/megatron", params={"allow_lossy": True}).status_code == 200


def test_an_unfinished_plan_cannot_be_exported() -> None:
    with client(FakePool(held=True)) as http:
        place = http.post("/v1/plans", json=JOB).headers["location"]
        answer = http.get(f"{place}/exports/deepspeed")
        assert answer.status_code == 409
        assert answer.json()["type"] == "/problems/not-ready"
