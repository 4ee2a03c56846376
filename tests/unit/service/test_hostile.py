"""Requests that are made to hurt: a body costs milliseconds, a pool's failure ends its job, other sites stay out."""

import asyncio
import json
import time
from typing import Any

import pytest
from starlette.testclient import TestClient

from service.reading import MOST_MARKS, MOST_VALUES
from service.solving.pool import OnProgress
from service.solving.worker import Answer, Task
from tests.databases import ambient
from tests.unit.service.client import JOB, FakePool, client

pytestmark = pytest.mark.usefixtures("databases")

JSON = {"Content-Type": "application/json"}
POOL = JOB["cluster"]["pools"][0]


@pytest.fixture(scope="module")
def http() -> Any:
    with client() as found:
        yield found


def many(count: int) -> str:
    return ",".join(f'"k{index}":1' for index in range(count))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("{" + many(30_000) + ',"k29999":1}', "a mapping has 30001 keys, the limit is 4096"),
        ("{" + many(60_000) + "}", f"60000 commas and brackets, the limit is {MOST_MARKS}"),
        ('{"a":[' + ",".join(["[]"] * 300_000) + "]}", f"the limit is {MOST_MARKS}"),
        ('{"a":[' + ",".join("{" + many(2000) + "}" for _ in range(10)) + "]}", f"the limit is {MOST_VALUES}"),
        (json.dumps({**JOB, "objective": ["x"] * 3_000}), f"the limit is {MOST_VALUES}"),
        (json.dumps({**JOB, "model": {"config": {"a": [1] * 100_000}}}), f"the limit is {MOST_MARKS}"),
        (json.dumps({**JOB, "constraints": {"tensor_parallel": {"values": [*range(1, 65)] * 20}}}), "limit is 64"),
        (json.dumps({**JOB, "cluster": {"pools": [POOL] * 17}}), "at most 16 items"),
        (json.dumps({**JOB, "model": {"config": {"a": ["[" * 97]}, "architecture": {}}}), "give exactly one"),
        ('{"model":{"config":' + '{"a":' * 600 + "1" + "}" * 602, "nests deeper than 24 levels"),
        (json.dumps({**JOB, **{f"k{index}": 1 for index in range(2000)}}), "(and 1999 more)"),
    ],
)
def test_a_hostile_body_is_refused_quickly(http: TestClient, body: str, message: str) -> None:
    started = time.perf_counter()
    answer = http.post("/v1/plans", content=body, headers=JSON)
    seconds = time.perf_counter() - started
    assert answer.status_code == 422, answer.text
    assert message in answer.json()["detail"]
    assert len(answer.json()["detail"]) < 1000
    # Far above what these take on a busy machine, far below what repeated scans of the body take.
    assert seconds < 3


def test_the_text_of_a_string_is_no_nesting(http: TestClient) -> None:
    body = {**JOB, "model": {"config": {"model_type": "x", "name": "[" * 97}}}
    answer = http.post("/v1/plans", json=body)
    assert answer.status_code == 422
    assert "nests" not in answer.json()["detail"]


class BrokenPool(FakePool):
    """Raises what no pool should."""

    async def submit(self, task: Task, on_progress: OnProgress) -> Answer:
        raise RecursionError("maximum recursion depth exceeded")


def test_whatever_a_pool_raises_ends_the_job() -> None:
    with client(BrokenPool(), BrokenPool()) as http:
        made = http.post("/v1/plans", json=JOB, headers={"Prefer": "wait=20"})
        assert made.status_code == 500
        assert made.json()["detail"] == "the plan failed with RecursionError"
        again = http.get(made.headers["location"])
        assert again.status_code == 500
        assert again.json()["instance"] == again.headers["x-request-id"]
        priced = http.post("/v1/estimates", json=JOB)
        assert priced.json()["detail"] == "the estimate failed with RecursionError"
        assert priced.json()["instance"] == priced.headers["x-request-id"]


def test_what_a_closing_service_was_working_on_is_done_by_the_next() -> None:
    class Stuck(FakePool):
        async def submit(self, task: Task, on_progress: OnProgress) -> Answer:
            self.tasks.append(task)
            await asyncio.Event().wait()
            raise AssertionError

    url, pool = ambient.fresh(), Stuck()
    with client(pool, database_url=url) as http:
        assert http.post("/v1/plans", json=JOB).status_code == 202
        while not pool.tasks:
            time.sleep(0.01)
    with client(database_url=url) as http:
        [made] = http.get("/v1/plans").json()["items"]
        answer = http.get(f"/v1/plans/{made['id']}", headers={"Prefer": "wait=20"})
        assert answer.json()["status"] == "optimal"


def test_estimates_are_work_for_a_pool() -> None:
    pool = FakePool()
    with client(estimates=pool) as http:
        assert http.post("/v1/estimates", json=JOB).status_code == 200
    assert [task.verb for task in pool.tasks] == ["estimate"]


@pytest.mark.parametrize("path", ["/livez", "/v1/models", "/v1/plans/none", "/openapi.json"])
def test_head_is_get_without_content(http: TestClient, path: str) -> None:
    asked, whole = http.head(path), http.get(path)
    assert asked.status_code == whole.status_code
    assert asked.content == b""
    assert asked.headers["content-type"] == whole.headers["content-type"]
    assert asked.headers["content-length"] == whole.headers["content-length"]


def test_head_of_what_is_only_posted(http: TestClient) -> None:
    assert http.head("/v1/jobs/any/versions").status_code == 405


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *[("localhost:8000", 200), ("127.0.0.1", 200), ("[::1]:8000", 200), ("LOCALHOST", 200)],
        *[("evil.example", 421), ("127.0.0.1.evil.example:8000", 421), ("[::2]", 421), ("", 421)],
    ],
)
def test_a_loopback_service_answers_to_its_own_names(http: TestClient, host: str, status: int) -> None:
    assert http.get("/v1/plans", headers={"Host": host}).status_code == status
    for public in ("/livez", "/readyz", "/docs", "/openapi.json", "/problems/busy"):
        assert http.get(public, headers={"Host": host}).status_code == 200, public


def test_behind_a_proxy_a_key_is_asked_for_whatever_the_name() -> None:
    proxied = {"Host": "planner.example"}
    with client(authentication="required") as http:
        assert http.get("/v1/plans", headers=proxied).status_code == 401
        assert http.get("/readyz", headers=proxied).status_code == 200


@pytest.mark.parametrize("path", ["/v1/plans/", "/livez/", "/v1/plans/x/", "/docs/", "/v1/none", "/docs/files/none"])
def test_nobody_is_sent_elsewhere(http: TestClient, path: str) -> None:
    answer = http.get(path, headers={"X-Forwarded-Proto": "https"}, follow_redirects=False)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


def test_any_name_will_do_when_told_so() -> None:
    with client(authentication="none") as http:
        assert http.get("/v1/plans", headers={"Host": "planner.example"}).status_code == 200


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [("global_batch_size", True, "true is not an integer"), ("sequence_length", "4096", "write 4096")],
)
def test_what_is_no_number_is_pointed_at(http: TestClient, key: str, value: Any, message: str) -> None:
    found = http.post("/v1/plans", json={**JOB, "training": {**JOB["training"], key: value}}).json()
    assert found["errors"][0]["pointer"] == f"/training/{key}"
    assert message in found["errors"][0]["detail"]


def test_an_unknown_key_gets_the_nearest_one(http: TestClient) -> None:
    found = http.post("/v1/plans", json={**JOB, "training": {**JOB["training"], "optimiser": "sgd"}}).json()
    assert "unknown key; did you mean optimizer?" in found["detail"]


def test_the_branch_of_a_union_is_no_place_in_the_body(http: TestClient) -> None:
    found = http.post("/v1/plans", json={**JOB, "objective": "speed"}).json()
    assert {entry["pointer"] for entry in found["errors"]} == {"/objective"}
