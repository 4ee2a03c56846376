"""Once per key: repeated, together, with another body, by another tenant, for another thing."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.unit.service.client import JOB, FakePool, client
from tests.unit.service.tenants import MEASUREMENT, world

pytestmark = pytest.mark.usefixtures("databases")
KEY = {"Idempotency-Key": "job-1", "Prefer": "wait=10"}
OTHER: dict[str, Any] = {**JOB, "objective": "memory"}


def test_another_body_under_a_key_is_refused_with_both_sides() -> None:
    with client() as http:
        made = http.post("/v1/plans", json=JOB, headers=KEY)
        refused = http.post("/v1/plans", json=OTHER, headers=KEY)
        assert (refused.status_code, refused.json()["type"]) == (422, "/problems/idempotency-key-reused")
        detail = refused.json()["detail"]
        assert "'job-1' stands for the request of SHA-256 " in detail
        assert f"which made {made.headers['location'].rpartition('/')[2]}; this request's is " in detail
        again = http.post("/v1/plans", json=JOB, headers=KEY)
        assert (again.status_code, again.content) == (200, made.content)


def test_requests_with_one_key_at_the_same_time_make_one_thing() -> None:
    with client() as http, ThreadPoolExecutor(8) as threads:
        place = http.post("/v1/plans", json=JOB, headers=KEY).headers["location"]
        posts = [threads.submit(http.post, f"{place}/measurements", json=MEASUREMENT, headers=KEY) for _ in range(8)]
        codes = Counter(post.result().status_code for post in posts)
        assert codes == {422: 8}, "the key stands for the plan"
        own = {"Idempotency-Key": "run-1"}
        posts = [threads.submit(http.post, f"{place}/measurements", json=MEASUREMENT, headers=own) for _ in range(8)]
        assert {post.result().status_code for post in posts} == {201}
        assert len({post.result().json()["id"] for post in posts}) == 1
        assert len(http.get(f"{place}/measurements").json()["items"]) == 1


def test_requests_with_one_key_and_two_bodies_at_the_same_time_make_one_thing() -> None:
    pool = FakePool(held=True)
    with client(pool) as http, ThreadPoolExecutor(8) as threads:
        headers = {"Idempotency-Key": "job-1"}
        bodies = [JOB, OTHER] * 4
        posts = [threads.submit(http.post, "/v1/plans", json=body, headers=headers) for body in bodies]
        assert Counter(post.result().status_code for post in posts) == {202: 4, 422: 4}
        assert len(http.get("/v1/plans").json()["items"]) == 1


def test_keys_and_contents_of_tenants_have_nothing_to_do_with_each_other() -> None:
    with world() as found:
        mine = found.ask("plan", "POST", "/v1/plans", json=JOB, headers=KEY)
        other = found.ask("neighbour", "POST", "/v1/plans", json=OTHER, headers=KEY)
        assert (mine.status_code, other.status_code) == (200, 200)
        equal = found.ask("neighbour", "POST", "/v1/plans", json=JOB, headers={"Prefer": "wait=10"})
        assert equal.status_code == 200
        assert equal.headers["location"] != mine.headers["location"], "another's store is not looked into"
        for place in (mine.headers["location"], f"{mine.headers['location']}/events"):
            assert found.ask("neighbour", "GET", place).status_code == 404
        etag = {"If-None-Match": mine.headers["etag"]}
        assert found.ask("neighbour", "GET", mine.headers["location"], headers=etag).status_code == 404


def test_a_key_of_one_thing_is_none_of_another() -> None:
    with client() as http:
        place = http.post("/v1/plans", json=JOB, headers=KEY).headers["location"]
        order = {"plan_id": place.rpartition("/")[2]}
        http.post("/v1/jobs", json={"name": "a", **order})
        http.post("/v1/jobs", json={"name": "b", **order})
        headers = {"Idempotency-Key": "next"}
        assert http.post("/v1/jobs/a/versions", json=order, headers=headers).status_code == 201
        assert http.post("/v1/jobs/b/versions", json=order, headers=headers).status_code == 422
        again = http.post("/v1/jobs/a/versions", json=order, headers=headers)
        assert [version["number"] for version in again.json()["versions"]] == [1, 2]
